"""Every method of every port has its row in the table of rights, and the row fits its messages."""

import importlib
import pkgutil

import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

import penstock.v1
from penstock.v1 import leases_pb2, writer_pb2
from services.accounts.rights import RIGHTS, names_at
from services.gateway.v2 import service_pb2

CONTRACTS = [
    *(
        importlib.import_module(f"penstock.v1.{module.name}")
        for module in pkgutil.iter_modules(penstock.v1.__path__)
        if module.name.endswith("_pb2")
    ),
    service_pb2,
    health_pb2,
    reflection_pb2,
]
METHODS = {
    (service.full_name, method.name): method
    for contract in CONTRACTS
    for service in contract.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def test_every_method_has_a_row_and_no_row_is_of_none():
    assert METHODS.keys() == RIGHTS.keys()


@pytest.mark.parametrize("place", sorted(RIGHTS), ids=".".join)
def test_a_row_names_fields_that_there_are(place):
    method, right = METHODS[place], RIGHTS[place]
    request, answer = (GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    assert not (
        method.client_streaming and right.names
    )  # nobody sees the requests of a stream before its servicer
    for names in right.names:
        assert leaf(request, names.path)
    for names in right.answered:
        assert leaf(answer, names.path)
    for shown in right.shown:
        field = answer.DESCRIPTOR.fields_by_name[shown.field]
        assert field.is_repeated
        assert (
            leaf(GetMessageClass(field.message_type), shown.path)
            if shown.path
            else field.type == field.TYPE_STRING
        )


def leaf(kind, path):
    """Whether a path ends at a text, by the descriptors alone."""
    descriptor = kind.DESCRIPTOR
    for name in path[:-1]:
        descriptor = descriptor.fields_by_name[name].message_type
    field = descriptor.fields_by_name[path[-1]]
    return field.type == field.TYPE_STRING


def topics_of(service, method):
    """Return the fields of a request that are called as topics and groups are."""
    kind = METHODS[service, method].input_type
    return {name for name in kind.fields_by_name if name in ("topic", "topics", "group", "groups")}


@pytest.mark.parametrize("place", sorted(RIGHTS), ids=".".join)
def test_a_topic_or_group_that_a_request_names_is_checked(place):
    right, method = RIGHTS[place], METHODS[place]
    checked = {names.path[0] for names in right.names}
    unchecked = topics_of(*place) - checked
    if method.client_streaming or place in NAMED_BESIDE:
        return
    assert not unchecked


def test_the_store_checks_the_topics_of_these_and_of_no_others():
    """Each has a test that a topic without the right is refused (``test_accounts_at_the_door.py``)."""
    assert {place for place, right in RIGHTS.items() if right.sends} == {
        ("penstock.v1.Writer", "Produce"),
        ("penstock.v1.Writer", "ProduceBatch"),
        ("penstock.v1.Writer", "ProduceStream"),
        ("penstock.v1.Writer", "StageRecords"),
        ("penstock.v1.Transactions", "Prepare"),
    }


NAMED_BESIDE = {
    ("penstock.v1.Leases", "ReleaseLeases"),  # of clients whose ids the caller knows
    ("penstock.v1.Gateway", "ListClients"),  # only narrows what is shown
    ("penstock.v1.DeadLetters", "AppendDeadLetters"),  # services alone call it
    *(
        ("apache.rocketmq.v2.MessagingService", method)  # not served
        for method in (
            "PullMessage",
            "UpdateOffset",
            "GetOffset",
            "QueryOffset",
            "SyncLiteSubscription",
        )
    ),
}


def test_names_are_found_through_repeated_fields_and_messages():
    request = writer_pb2.ProduceRequest(messages=[{"topic": "a"}, {"topic": ""}, {"topic": "b"}])
    assert list(names_at(request, ("messages", "topic"))) == ["a", "", "b"]
    assert not list(names_at(writer_pb2.ProduceRequest(), ("messages", "topic")))
    assert not list(names_at(service_pb2.HeartbeatRequest(), ("group", "name")))
    assert list(names_at(leases_pb2.ReceiveRequest(), ("topic",))) == [""]
