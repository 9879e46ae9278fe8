"""The contract's methods and the raw framing around them; no I/O.

Record bytes are never copied into or out of protobuf objects here: a produce batch is framed by
hand (``ProduceBatchRequest.producer``, then its records), and a response whose last field is
``records`` is split so that protobuf parses the small front part and the records stay a view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from google.protobuf.message_factory import GetMessageClass

from penstock.addresses import Service
from penstock.framing import WithRecords, framed_batch, split_records
from penstock.v1 import (
    accounts_pb2,
    gateway_pb2,
    groups_pb2,
    indexer_pb2,
    leases_pb2,
    reader_pb2,
    retention_pb2,
    settings_pb2,
    timers_pb2,
    traffic_pb2,
    transactions_pb2,
    writer_pb2,
)

Kind = Literal["unary_unary", "unary_stream", "stream_unary", "stream_stream"]
_KINDS: Final[dict[tuple[bool, bool], Kind]] = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its service, its path, how its messages become bytes and back, and which of them stream."""

    service: Service
    path: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    kind: Kind = "unary_unary"

    def on(self, channel: Any) -> Any:
        """Return grpc's callable for the method over a channel."""
        make: Callable[..., Any] = getattr(channel, self.kind)
        return make(
            self.path, request_serializer=self.serialize, response_deserializer=self.deserialize
        )


def _of(
    service: Service,
    contract: Any,
    name: str,
    *,
    serialize: Callable[[Any], bytes] | None = None,
    has_records: bool = False,
) -> Method:
    """Return a method of a contract, such as ``Writer/Produce``, which a service serves.

    ``has_records``: the answer ends with records, which stay a view of its bytes.
    """
    contract_name, method_name = name.split("/")
    method = contract.DESCRIPTOR.services_by_name[contract_name].methods_by_name[method_name]
    answer = GetMessageClass(method.output_type)
    deserialize: Callable[[bytes], Any] = answer.FromString
    if has_records:
        field_number = method.output_type.fields_by_name["records"].number
        deserialize = partial(_split, answer, field_number)
    return Method(
        service,
        f"/penstock.v1.{name}",
        serialize or GetMessageClass(method.input_type).SerializeToString,
        deserialize,
        _KINDS[method.client_streaming, method.server_streaming],
    )


def _split(answer: Any, field_number: int, data: bytes) -> WithRecords:
    return split_records(data, answer, field_number)


def _frame_request(
    request: tuple[bytes, *tuple[bytes | bytearray | memoryview, ...]],
) -> bytes:
    producer, *records = request
    return framed_batch(records, sum(map(len, records)), producer)


def settings_methods(service: Service) -> tuple[Method, Method]:
    """Return how a service is asked for its running settings, and told others."""
    return (
        _of(service, settings_pb2, "Settings/GetSettings"),
        _of(service, settings_pb2, "Settings/UpdateSettings"),
    )


_writer = partial(_of, "writer")
_reader = partial(_of, "reader")

# Requests whose size has to be known come serialized.
PRODUCE: Final = _writer(writer_pb2, "Writer/Produce", serialize=bytes)
PRODUCE_BATCH: Final = _writer(writer_pb2, "Writer/ProduceBatch", serialize=_frame_request)
STAGE_RECORDS: Final = _writer(writer_pb2, "Writer/StageRecords", serialize=bytes)
COMMIT_STAGED: Final = _writer(writer_pb2, "Writer/CommitStaged")
ABORT_STAGED: Final = _writer(writer_pb2, "Writer/AbortStaged")
LIST_STAGED_COMMITS: Final = _writer(writer_pb2, "Writer/ListStagedCommits")
CREATE_TOPIC: Final = _writer(writer_pb2, "Writer/CreateTopic")
CREATE_TOPICS: Final = _writer(writer_pb2, "Writer/CreateTopics")
UPDATE_TOPIC: Final = _writer(writer_pb2, "Writer/UpdateTopic")
DELETE_TOPIC: Final = _writer(writer_pb2, "Writer/DeleteTopic")
DESCRIBE_TOPIC: Final = _writer(writer_pb2, "Writer/DescribeTopic")
LIST_TOPICS: Final = _writer(writer_pb2, "Writer/ListTopics")
WRITER_STATUS: Final = _writer(writer_pb2, "Writer/GetWriterStatus")
GET_RETENTION: Final = _writer(retention_pb2, "Retention/GetRetention")
DELETE_EXPIRED: Final = _writer(retention_pb2, "Retention/DeleteExpired")
RECALL: Final = _writer(timers_pb2, "Timers/Recall")
COUNT_TIMERS: Final = _writer(timers_pb2, "Timers/CountTimers")
TRAFFIC_IN: Final = _writer(traffic_pb2, "Traffic/GetTraffic")
CREATE_USER: Final = _writer(accounts_pb2, "Accounts/CreateUser")
UPDATE_USER: Final = _writer(accounts_pb2, "Accounts/UpdateUser")
DELETE_USER: Final = _writer(accounts_pb2, "Accounts/DeleteUser")
LIST_USERS: Final = _writer(accounts_pb2, "Accounts/ListUsers")
PUT_POLICY: Final = _writer(accounts_pb2, "Accounts/PutPolicy")
DELETE_POLICIES: Final = _writer(accounts_pb2, "Accounts/DeletePolicies")
LIST_POLICIES: Final = _writer(accounts_pb2, "Accounts/ListPolicies")
PREPARE: Final = _writer(transactions_pb2, "Transactions/Prepare")
END_TRANSACTIONS: Final = _writer(transactions_pb2, "Transactions/EndTransactions")
LIST_TRANSACTIONS: Final = _writer(transactions_pb2, "Transactions/ListTransactions")
WATCH_CHECKS: Final = _writer(transactions_pb2, "Transactions/WatchChecks")
PULL: Final = _reader(reader_pb2, "Reader/Pull", has_records=True)
PULL_STREAM: Final = _reader(reader_pb2, "Reader/PullStream", has_records=True)
QUERY_BY_KEY: Final = _reader(reader_pb2, "Reader/QueryByKey", has_records=True)
GET_MESSAGE: Final = _reader(reader_pb2, "Reader/GetMessage")
LIST_QUEUES: Final = _reader(reader_pb2, "Reader/ListQueues")
QUERY_OFFSET: Final = _reader(reader_pb2, "Reader/QueryOffset")
COMMIT_OFFSET: Final = _reader(reader_pb2, "Reader/CommitOffset")
FETCH_OFFSETS: Final = _reader(reader_pb2, "Reader/FetchOffsets")
LIST_GROUPS: Final = _reader(reader_pb2, "Reader/ListGroups")
READER_STATUS: Final = _reader(reader_pb2, "Reader/GetReaderStatus")
RECEIVE: Final = _reader(leases_pb2, "Leases/Receive", has_records=True)
ACKNOWLEDGE: Final = _reader(leases_pb2, "Leases/Acknowledge")
CHANGE_LEASES: Final = _reader(leases_pb2, "Leases/ChangeLeases")
DEAD_LETTER: Final = _reader(leases_pb2, "Leases/DeadLetter")
RENEW_LEASES: Final = _reader(leases_pb2, "Leases/RenewLeases")
RELEASE_LEASES: Final = _reader(leases_pb2, "Leases/ReleaseLeases")
LEASE_STATUS: Final = _reader(leases_pb2, "Leases/GetLeaseStatus")
TRACK_MESSAGE: Final = _reader(leases_pb2, "Leases/TrackMessage")
TRAFFIC_OUT: Final = _reader(traffic_pb2, "Traffic/GetTraffic")
CREATE_GROUP: Final = _reader(groups_pb2, "Groups/CreateGroup")
UPDATE_GROUP: Final = _reader(groups_pb2, "Groups/UpdateGroup")
DESCRIBE_GROUP: Final = _reader(groups_pb2, "Groups/DescribeGroup")
DELETE_GROUP: Final = _reader(groups_pb2, "Groups/DeleteGroup")
LIST_GROUP_SETTINGS: Final = _reader(groups_pb2, "Groups/ListGroupSettings")
RESET_GROUP: Final = _reader(groups_pb2, "Groups/ResetGroup")
LIST_CLIENTS: Final = _reader(gateway_pb2, "Gateway/ListClients")
INDEXER_STATUS: Final = _of("indexer", indexer_pb2, "Indexer/GetIndexerStatus")
WAIT_INDEXED: Final = _of("indexer", indexer_pb2, "Indexer/WaitIndexed")
