"""The contract's methods and the raw framing around them; no I/O.

Record bytes are never copied into or out of protobuf objects here: a produce batch is framed by
hand (``ProduceBatchRequest.producer``, then its records), and a response whose last field is
``records`` is split so that protobuf parses the small front part and the records stay a view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from google.protobuf.message import Message as ProtoMessage

from penstock.addresses import Service
from penstock.framing import WithRecords, framed_batch, split_records
from penstock.v1 import (
    accounts_pb2,
    common_pb2,
    gateway_pb2,
    groups_pb2,
    indexer_pb2,
    leases_pb2,
    reader_pb2,
    retention_pb2,
    settings_pb2,
    staged_commits_pb2,
    timers_pb2,
    traffic_pb2,
    transactions_pb2,
    writer_pb2,
)


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its service, its path, how its messages become bytes and back, and which of them stream."""

    service: Service
    path: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    kind: Literal["unary_unary", "unary_stream", "stream_unary", "stream_stream"] = "unary_unary"

    def on(self, channel: Any) -> Any:
        """Return grpc's callable for the method; ``channel`` is synchronous or asyncio's."""
        make: Callable[..., Any] = getattr(channel, self.kind)
        return make(
            self.path, request_serializer=self.serialize, response_deserializer=self.deserialize
        )


def _frame_request(request: tuple[bytes, bytes | bytearray | memoryview]) -> bytes:
    producer, records = request
    return framed_batch([records], len(records), producer)


def _pull_response(data: bytes) -> WithRecords:
    return split_records(data, reader_pb2.PullResponse, 8)


def _query_response(data: bytes) -> WithRecords:
    return split_records(data, reader_pb2.QueryByKeyResponse, 6)


def _receive_response(data: bytes) -> WithRecords:
    return split_records(data, leases_pb2.ReceiveResponse, 15)


def settings_methods(service: Service) -> tuple[Method, Method]:
    """Return how a service is asked for its running settings, and told others."""
    return (
        _of(service, "Settings/GetSettings", _s.GetSettingsRequest, _s.RunningSettings),
        _of(service, "Settings/UpdateSettings", _s.UpdateSettingsRequest, _s.RunningSettings),
    )


def _method(
    service: Service,
    name: str,
    request: type[ProtoMessage],
    response: type[ProtoMessage],
) -> Method:
    return _of(service, f"{service.capitalize()}/{name}", request, response)


def _of(
    service: Service, name: str, request: type[ProtoMessage], response: type[ProtoMessage]
) -> Method:
    """Return a method of one of the contracts that a service serves."""
    path = f"/penstock.v1.{name}"
    return Method(service, path, request.SerializeToString, response.FromString)


_w, _r, _i, _t = writer_pb2, reader_pb2, indexer_pb2, staged_commits_pb2
_a, _s, _f = accounts_pb2, settings_pb2, traffic_pb2
_g, _l, _x, _d = groups_pb2, leases_pb2, transactions_pb2, timers_pb2

PRODUCE: Final = Method(
    "writer",
    "/penstock.v1.Writer/Produce",
    bytes,  # requests come serialized, so that their size is known
    _w.ProduceResponse.FromString,
)
PRODUCE_BATCH: Final = Method(
    "writer", "/penstock.v1.Writer/ProduceBatch", _frame_request, _w.ProduceBatchResponse.FromString
)
PRODUCE_STREAM: Final = Method(
    "writer",
    "/penstock.v1.Writer/ProduceStream",
    bytes,  # frames come serialized
    _w.ProduceStreamResponse.FromString,
    "stream_stream",
)
STAGE_RECORDS: Final = Method(
    "writer",
    "/penstock.v1.Writer/StageRecords",
    bytes,  # requests come serialized
    _t.StageRecordsResponse.FromString,
    "stream_unary",
)
COMMIT_STAGED: Final = _method(
    "writer", "CommitStaged", _t.CommitStagedRequest, _t.CommitStagedResponse
)
ABORT_STAGED: Final = _method(
    "writer", "AbortStaged", _t.AbortStagedRequest, _t.AbortStagedResponse
)
LIST_STAGED_COMMITS: Final = _method(
    "writer", "ListStagedCommits", _t.ListStagedCommitsRequest, _t.ListStagedCommitsResponse
)
CREATE_TOPIC: Final = _method("writer", "CreateTopic", _w.CreateTopicRequest, common_pb2.Topic)
CREATE_TOPICS: Final = _method(
    "writer", "CreateTopics", _w.CreateTopicsRequest, _w.CreateTopicsResponse
)
UPDATE_TOPIC: Final = _method("writer", "UpdateTopic", _w.UpdateTopicRequest, common_pb2.Topic)
DELETE_TOPIC: Final = _method(
    "writer", "DeleteTopic", _w.DeleteTopicRequest, _w.DeleteTopicResponse
)
DESCRIBE_TOPIC: Final = _method(
    "writer", "DescribeTopic", _w.DescribeTopicRequest, _w.DescribeTopicResponse
)
LIST_TOPICS: Final = _method("writer", "ListTopics", _w.ListTopicsRequest, _w.ListTopicsResponse)
WRITER_STATUS: Final = _method(
    "writer", "GetWriterStatus", _w.GetWriterStatusRequest, _w.WriterStatus
)
GET_RETENTION: Final = _of(
    "writer",
    "Retention/GetRetention",
    retention_pb2.GetRetentionRequest,
    retention_pb2.RetentionReport,
)
DELETE_EXPIRED: Final = _of(
    "writer",
    "Retention/DeleteExpired",
    retention_pb2.DeleteExpiredRequest,
    retention_pb2.RetentionReport,
)
PULL: Final = Method(
    "reader", "/penstock.v1.Reader/Pull", _r.PullRequest.SerializeToString, _pull_response
)
PULL_STREAM: Final = Method(
    "reader",
    "/penstock.v1.Reader/PullStream",
    _r.PullStreamRequest.SerializeToString,
    _pull_response,
    "unary_stream",
)
QUERY_BY_KEY: Final = Method(
    "reader",
    "/penstock.v1.Reader/QueryByKey",
    _r.QueryByKeyRequest.SerializeToString,
    _query_response,
)
GET_MESSAGE: Final = _method("reader", "GetMessage", _r.GetMessageRequest, _r.GetMessageResponse)
LIST_QUEUES: Final = _method("reader", "ListQueues", _r.ListQueuesRequest, _r.ListQueuesResponse)
QUERY_OFFSET: Final = _method(
    "reader", "QueryOffset", _r.QueryOffsetRequest, _r.QueryOffsetResponse
)
COMMIT_OFFSET: Final = _method(
    "reader", "CommitOffset", _r.CommitOffsetRequest, _r.CommitOffsetResponse
)
FETCH_OFFSETS: Final = _method(
    "reader", "FetchOffsets", _r.FetchOffsetsRequest, _r.FetchOffsetsResponse
)
LIST_GROUPS: Final = _method("reader", "ListGroups", _r.ListGroupsRequest, _r.ListGroupsResponse)
READER_STATUS: Final = _method(
    "reader", "GetReaderStatus", _r.GetReaderStatusRequest, _r.ReaderStatus
)
INDEXER_STATUS: Final = _method(
    "indexer", "GetIndexerStatus", _i.GetIndexerStatusRequest, _i.IndexerStatus
)
WAIT_INDEXED: Final = _method("indexer", "WaitIndexed", _i.WaitIndexedRequest, _i.IndexerStatus)
RECEIVE: Final = Method(
    "reader",
    "/penstock.v1.Leases/Receive",
    _l.ReceiveRequest.SerializeToString,
    _receive_response,
)
ACKNOWLEDGE: Final = _of(
    "reader", "Leases/Acknowledge", _l.AcknowledgeRequest, _l.AcknowledgeResponse
)
CHANGE_LEASES: Final = _of(
    "reader", "Leases/ChangeLeases", _l.ChangeLeasesRequest, _l.ChangeLeasesResponse
)
RECALL: Final = _of("writer", "Timers/Recall", _d.RecallRequest, _d.RecallResponse)
COUNT_TIMERS: Final = _of(
    "writer", "Timers/CountTimers", _d.CountTimersRequest, _d.CountTimersResponse
)
DEAD_LETTER: Final = _of("reader", "Leases/DeadLetter", _l.DeadLetterRequest, _l.DeadLetterResponse)
RENEW_LEASES: Final = _of(
    "reader", "Leases/RenewLeases", _l.RenewLeasesRequest, _l.RenewLeasesResponse
)
RELEASE_LEASES: Final = _of(
    "reader", "Leases/ReleaseLeases", _l.ReleaseLeasesRequest, _l.ReleaseLeasesResponse
)
LEASE_STATUS: Final = _of(
    "reader", "Leases/GetLeaseStatus", _l.GetLeaseStatusRequest, _l.LeaseStatus
)
TRAFFIC_IN: Final = _of("writer", "Traffic/GetTraffic", _f.GetTrafficRequest, _f.TrafficReport)
TRAFFIC_OUT: Final = _of("reader", "Traffic/GetTraffic", _f.GetTrafficRequest, _f.TrafficReport)
TRACK_MESSAGE: Final = _of(
    "reader", "Leases/TrackMessage", _l.TrackMessageRequest, _l.TrackMessageResponse
)
CREATE_GROUP: Final = _of("reader", "Groups/CreateGroup", _g.CreateGroupRequest, _g.GroupSettings)
UPDATE_GROUP: Final = _of("reader", "Groups/UpdateGroup", _g.UpdateGroupRequest, _g.GroupSettings)
DESCRIBE_GROUP: Final = _of(
    "reader", "Groups/DescribeGroup", _g.DescribeGroupRequest, _g.DescribeGroupResponse
)
DELETE_GROUP: Final = _of(
    "reader", "Groups/DeleteGroup", _g.DeleteGroupRequest, _g.DeleteGroupResponse
)
LIST_GROUP_SETTINGS: Final = _of(
    "reader", "Groups/ListGroupSettings", _g.ListGroupSettingsRequest, _g.ListGroupSettingsResponse
)
RESET_GROUP: Final = _of("reader", "Groups/ResetGroup", _g.ResetGroupRequest, _g.ResetGroupResponse)
LIST_CLIENTS: Final = _of(
    "reader",
    "Gateway/ListClients",
    gateway_pb2.ListClientsRequest,
    gateway_pb2.ListClientsResponse,
)
CREATE_USER: Final = _of("writer", "Accounts/CreateUser", _a.CreateUserRequest, _a.UserWithSecret)
UPDATE_USER: Final = _of("writer", "Accounts/UpdateUser", _a.UpdateUserRequest, _a.UserWithSecret)
DELETE_USER: Final = _of(
    "writer", "Accounts/DeleteUser", _a.DeleteUserRequest, _a.DeleteUserResponse
)
LIST_USERS: Final = _of("writer", "Accounts/ListUsers", _a.ListUsersRequest, _a.ListUsersResponse)
PUT_POLICY: Final = _of("writer", "Accounts/PutPolicy", _a.Policy, _a.Policy)
DELETE_POLICIES: Final = _of(
    "writer", "Accounts/DeletePolicies", _a.DeletePoliciesRequest, _a.DeletePoliciesResponse
)
LIST_POLICIES: Final = _of(
    "writer", "Accounts/ListPolicies", _a.ListPoliciesRequest, _a.ListPoliciesResponse
)
PREPARE: Final = _of("writer", "Transactions/Prepare", _x.PrepareRequest, _x.PrepareResponse)
END_TRANSACTIONS: Final = _of(
    "writer", "Transactions/EndTransactions", _x.EndTransactionsRequest, _x.EndTransactionsResponse
)
LIST_TRANSACTIONS: Final = _of(
    "writer",
    "Transactions/ListTransactions",
    _x.ListTransactionsRequest,
    _x.ListTransactionsResponse,
)
WATCH_CHECKS: Final = Method(
    "writer",
    "/penstock.v1.Transactions/WatchChecks",
    _x.WatchChecksRequest.SerializeToString,
    _x.TransactionCheck.FromString,
    "unary_stream",
)
