"""Method by method: what a call does, and where its request names the topics and groups.

``RIGHTS`` has every method of every port; ``tests/services/accounts/test_rights.py`` fails when one is
missing. A path such as ``messages.topic`` goes through fields, of repeated ones through each element. An
empty name at its end is the resource ``*``, which only a policy for all of them covers; an optional name that
is empty names nothing. A path that ends at no element names nothing, and then the caller need only be a user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from storage.accounts.rules import THE_CLUSTER, Action, Resource

ResourceOf = Callable[[str], Resource]
Actions = tuple[Action, ...]


class Who(Enum):
    """Who may call a method at all; what policies say comes on top."""

    ANYBODY = "anybody, also without an account"
    USERS = "every user"
    SUPER_USERS = "super users"
    SERVICES = "services of the store, and gateways"


class Names(NamedTuple):
    """Resources that a message names: where, and the actions of which one must be allowed there."""

    actions: Actions
    resource: ResourceOf
    path: tuple[str, ...]
    is_optional: bool = False  # an empty name is then none


class Shown(NamedTuple):
    """Elements of an answer that a caller sees only with a right: the repeated field, and the name in each."""

    actions: Actions
    resource: ResourceOf
    field: str
    path: tuple[str, ...]


class Right(NamedTuple):
    """What a method needs."""

    who: Who = Who.USERS
    names: tuple[
        Names, ...
    ] = ()  # of its request; the servicer checks each of a stream, the store those of records
    cluster: Action | None = None
    answered: tuple[Names, ...] = ()  # of its answer
    shown: tuple[Shown, ...] = ()
    sends: bool = False  # records, whose topics the store checks where it has read them

    @property
    def has_needs(self) -> bool:
        """Whether more is needed than to be a user, and known before the call is made."""
        return (
            self.who is not Who.USERS
            or self.cluster is not None
            or (bool(self.names) and not self.sends)
        )


def _topics(actions: Actions, path: str, *, is_optional: bool = False) -> tuple[Names, ...]:
    return (Names(actions, Resource.topic, tuple(path.split(".")), is_optional),)


def _groups(actions: Actions, path: str) -> tuple[Names, ...]:
    return (Names(actions, Resource.group, tuple(path.split("."))),)


def _shown(resource: ResourceOf, field: str, path: str = "") -> Shown:
    return Shown(_LOOKS, resource, field, tuple(path.split(".")) if path else ())


def _cluster(action: Action) -> Right:
    return Right(cluster=action)


_PUB: Final[Actions] = (Action.PUB,)
_SUB: Final[Actions] = (Action.SUB,)
_CREATE: Final[Actions] = (Action.CREATE,)
_UPDATE: Final[Actions] = (Action.UPDATE,)
_DELETE: Final[Actions] = (Action.DELETE,)
# Who sends or consumes has to see the queues of a topic, and the settings of its group.
_LOOKS: Final[Actions] = (Action.GET, Action.LIST, Action.PUB, Action.SUB)
_LOOKS_AT_GROUP: Final = Right(
    names=_groups(_LOOKS, "group") + _topics(_LOOKS, "topic", is_optional=True)
)
_CONSUMES: Final = Right(names=_topics(_SUB, "topic") + _groups(_SUB, "group"))
_STATUS: Final = _cluster(Action.GET)
_STAGES: Final = _cluster(Action.PUB)  # whose a stage is, nobody notes
_SUPER: Final = Right(who=Who.SUPER_USERS)

_WRITER: Final = {
    "Produce": Right(names=_topics(_PUB, "messages.topic"), sends=True),
    "ProduceBatch": Right(sends=True),
    "ProduceStream": Right(sends=True),
    "StageRecords": _STAGES._replace(sends=True),
    "CommitStaged": _STAGES,
    "AbortStaged": _STAGES,
    "ListStagedCommits": _STAGES,
    "CreateTopic": Right(names=_topics(_CREATE, "name")),
    "CreateTopics": Right(names=_topics(_CREATE, "topics.name")),
    "UpdateTopic": Right(names=_topics(_UPDATE, "name")),
    "DeleteTopic": Right(names=_topics(_DELETE, "name")),
    "DescribeTopic": Right(names=_topics(_LOOKS, "name")),
    "ListTopics": Right(shown=(_shown(Resource.topic, "topics", "name"),)),
    "GetWriterStatus": _STATUS,
}
_READER: Final = {
    "Pull": Right(names=_topics(_SUB, "topic")),
    "PullStream": Right(names=_topics(_SUB, "topic")),
    "QueryByKey": Right(names=_topics(_SUB, "topic")),
    "GetMessage": Right(answered=_topics(_SUB, "record.topic")),
    "ListQueues": Right(
        names=_topics(_LOOKS, "topics"),
        shown=(
            _shown(Resource.topic, "queues", "topic"),
            _shown(Resource.topic, "topics"),
            _shown(Resource.topic, "described", "name"),
        ),
    ),
    "QueryOffset": Right(names=_topics(_LOOKS, "topic")),
    "CommitOffset": _CONSUMES,
    "FetchOffsets": _LOOKS_AT_GROUP,
    "ListGroups": Right(shown=(_shown(Resource.group, "groups"),)),
    "GetReaderStatus": _STATUS,
}
_GROUPS: Final = {
    "CreateGroup": Right(names=_groups(_CREATE, "settings.name")),
    "UpdateGroup": Right(names=_groups(_UPDATE, "settings.name")),
    "DescribeGroup": _LOOKS_AT_GROUP,
    "DeleteGroup": Right(names=_groups(_DELETE, "group")),
    "ListGroupSettings": Right(shown=(_shown(Resource.group, "groups", "name"),)),
    "ResetGroup": Right(names=_groups(_UPDATE, "group") + _topics(_SUB, "topic")),
}
_LEASES: Final = {
    "Receive": _CONSUMES,
    "Acknowledge": _CONSUMES,
    "AcknowledgeStream": Right(),  # each request as Acknowledge
    "ChangeLeases": _CONSUMES,
    "DeadLetter": _CONSUMES,
    "RenewLeases": Right(),  # by the names of clients, which are drawn at random
    "ReleaseLeases": Right(),
    "TrackMessage": Right(
        names=_topics(_LOOKS, "topic"), shown=(_shown(Resource.group, "groups", "group"),)
    ),
    "GetLeaseStatus": Right(cluster=Action.GET, shown=(_shown(Resource.group, "groups", "group"),)),
}
_TRANSACTIONS: Final = {
    "Prepare": Right(sends=True),
    "EndTransactions": Right(names=_topics(_PUB, "topic")),
    "ListTransactions": Right(shown=(_shown(Resource.topic, "transactions", "topics"),)),
    "WatchChecks": Right(names=_topics(_PUB, "topics")),
    "ReturnChecks": Right(who=Who.SERVICES),  # of gateways, whose producers were away
}
_CONSUMES_OF_ROCKETMQ: Final = Right(
    names=_topics(_SUB, "topic.name") + _groups(_SUB, "group.name")
)
_MESSAGING: Final = {
    "QueryRoute": Right(names=_topics(_LOOKS, "topic.name")),
    "Heartbeat": Right(who=Who.ANYBODY, names=_groups(_SUB, "group.name")),
    "SendMessage": Right(names=_topics(_PUB, "messages.topic.name")),
    "QueryAssignment": _CONSUMES_OF_ROCKETMQ,
    "ReceiveMessage": Right(
        names=_topics(_SUB, "message_queue.topic.name") + _groups(_SUB, "group.name")
    ),
    "AckMessage": _CONSUMES_OF_ROCKETMQ,
    "ForwardMessageToDeadLetterQueue": _CONSUMES_OF_ROCKETMQ,
    "EndTransaction": Right(names=_topics(_PUB, "topic.name")),
    "Telemetry": Right(),  # each settings command names topics and groups
    "NotifyClientTermination": Right(names=_groups(_SUB, "group.name")),
    "ChangeInvisibleDuration": _CONSUMES_OF_ROCKETMQ,
    "RecallMessage": Right(names=_topics(_PUB, "topic.name")),
    "PullMessage": Right(),  # these are not served
    "UpdateOffset": Right(),
    "GetOffset": Right(),
    "QueryOffset": Right(),
    "SyncLiteSubscription": Right(),
}
_BY_SERVICE: Final = {
    "penstock.v1.Writer": _WRITER,
    "penstock.v1.Reader": _READER,
    "penstock.v1.Groups": _GROUPS,
    "penstock.v1.Leases": _LEASES,
    "penstock.v1.Transactions": _TRANSACTIONS,
    "penstock.v1.Timers": {
        "Recall": Right(names=_topics(_PUB, "topic")),
        "CountTimers": _STATUS,
    },
    "penstock.v1.Retention": {"GetRetention": _STATUS, "DeleteExpired": _cluster(Action.DELETE)},
    "penstock.v1.DeadLetters": {"AppendDeadLetters": Right(who=Who.SERVICES)},
    "penstock.v1.Indexer": {"GetIndexerStatus": _STATUS, "WaitIndexed": Right()},
    "penstock.v1.Gateway": {
        "ListClients": Right(
            cluster=Action.GET, shown=(_shown(Resource.group, "clients", "group"),)
        )
    },
    "penstock.v1.Accounts": {
        "CreateUser": _SUPER,
        "UpdateUser": _SUPER,
        "DeleteUser": _SUPER,
        "ListUsers": _SUPER,
        "PutPolicy": _SUPER,
        "DeletePolicies": _SUPER,
        "ListPolicies": _SUPER,
    },
    "penstock.v1.Traffic": {
        "GetTraffic": Right(
            shown=(
                _shown(Resource.topic, "stored", "topic"),
                _shown(Resource.topic, "sent", "topic"),
                _shown(Resource.group, "sent", "group"),
                _shown(Resource.group, "lags", "group"),
            )
        )
    },
    "penstock.v1.Settings": {"GetSettings": _STATUS, "UpdateSettings": _cluster(Action.UPDATE)},
    "penstock.v1.Authentication": {
        "GetRules": Right(who=Who.SERVICES),
        "VerifySignature": Right(who=Who.SERVICES),
    },
    "apache.rocketmq.v2.MessagingService": _MESSAGING,
    "grpc.health.v1.Health": {
        "Check": Right(who=Who.ANYBODY),
        "Watch": Right(who=Who.ANYBODY),
        "List": Right(who=Who.ANYBODY),
    },
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": Right()},
}
RIGHTS: Final[Mapping[tuple[str, str], Right]] = {
    (service, method): right
    for service, methods in _BY_SERVICE.items()
    for method, right in methods.items()
}


def names_at(message: Message, path: tuple[str, ...]) -> list[str]:
    """Return the names that a message has at a path."""
    found: list[Any] = [message if path else str(message)]
    for name, is_repeated, is_message in _fields(message.DESCRIPTOR, path):
        if is_repeated:
            found = [element for each in found for element in getattr(each, name)]
        else:
            found = [getattr(each, name) for each in found if not is_message or each.HasField(name)]
    return found


@cache
def _fields(descriptor: Any, path: tuple[str, ...]) -> list[tuple[str, bool, bool]]:
    """Return the fields of a path through a kind of message: name, whether it is repeated, whether it is a message."""
    fields = []
    for name in path:
        field = descriptor.fields_by_name[name]
        descriptor = field.message_type
        fields.append((name, field.is_repeated, descriptor is not None))
    return fields


def named(message: Message, names: Names) -> list[Resource]:
    """Return the resources that a message names."""
    return [
        names.resource(name or THE_CLUSTER.name)
        for name in names_at(message, names.path)
        if name or not names.is_optional
    ]
