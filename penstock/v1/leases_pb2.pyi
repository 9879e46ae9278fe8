from penstock.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HandleProblem(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HANDLE_PROBLEM_UNSPECIFIED: _ClassVar[HandleProblem]
    EXPIRED: _ClassVar[HandleProblem]
    ACKNOWLEDGED: _ClassVar[HandleProblem]
    FORGED: _ClassVar[HandleProblem]

class TrackState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACK_STATE_UNSPECIFIED: _ClassVar[TrackState]
    READY: _ClassVar[TrackState]
    IN_FLIGHT: _ClassVar[TrackState]
    WAITING: _ClassVar[TrackState]
    DONE: _ClassVar[TrackState]
    BEFORE_BEGIN: _ClassVar[TrackState]
    DEAD: _ClassVar[TrackState]
HANDLE_PROBLEM_UNSPECIFIED: HandleProblem
EXPIRED: HandleProblem
ACKNOWLEDGED: HandleProblem
FORGED: HandleProblem
TRACK_STATE_UNSPECIFIED: TrackState
READY: TrackState
IN_FLIGHT: TrackState
WAITING: TrackState
DONE: TrackState
BEFORE_BEGIN: TrackState
DEAD: TrackState

class ReceiveRequest(_message.Message):
    __slots__ = ("group", "topic", "max_messages", "max_bytes", "lease_ms", "wait_ms", "tag_expression", "sql_expression", "auto_renew", "client_id", "attempt_id", "queue_ids")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TAG_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    SQL_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    AUTO_RENEW_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    max_messages: int
    max_bytes: int
    lease_ms: int
    wait_ms: int
    tag_expression: str
    sql_expression: str
    auto_renew: bool
    client_id: str
    attempt_id: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., lease_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., tag_expression: _Optional[str] = ..., sql_expression: _Optional[str] = ..., auto_renew: _Optional[bool] = ..., client_id: _Optional[str] = ..., attempt_id: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("record_count", "attempts", "receipt_handles", "lease_end_ms", "damaged", "records")
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLES_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_MS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    record_count: int
    attempts: _containers.RepeatedScalarFieldContainer[int]
    receipt_handles: bytes
    lease_end_ms: int
    damaged: _containers.RepeatedCompositeFieldContainer[_common_pb2.DamagedRecord]
    records: bytes
    def __init__(self, record_count: _Optional[int] = ..., attempts: _Optional[_Iterable[int]] = ..., receipt_handles: _Optional[bytes] = ..., lease_end_ms: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[_common_pb2.DamagedRecord, _Mapping]]] = ..., records: _Optional[bytes] = ...) -> None: ...

class RefusedHandle(_message.Message):
    __slots__ = ("index", "problem")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    index: int
    problem: HandleProblem
    def __init__(self, index: _Optional[int] = ..., problem: _Optional[_Union[HandleProblem, str]] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("group", "topic", "receipt_handles")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    receipt_handles: bytes
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., receipt_handles: _Optional[bytes] = ...) -> None: ...

class AcknowledgeResponse(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedHandle]
    def __init__(self, refused: _Optional[_Iterable[_Union[RefusedHandle, _Mapping]]] = ...) -> None: ...

class AcknowledgeStreamResponse(_message.Message):
    __slots__ = ("done", "failure")
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    done: AcknowledgeResponse
    failure: _common_pb2.Failure
    def __init__(self, done: _Optional[_Union[AcknowledgeResponse, _Mapping]] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ...) -> None: ...

class ChangeLeasesRequest(_message.Message):
    __slots__ = ("group", "topic", "receipt_handles", "duration_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLES_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    receipt_handles: bytes
    duration_ms: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., receipt_handles: _Optional[bytes] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class ChangeLeasesResponse(_message.Message):
    __slots__ = ("refused", "lease_end_ms")
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_MS_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedHandle]
    lease_end_ms: int
    def __init__(self, refused: _Optional[_Iterable[_Union[RefusedHandle, _Mapping]]] = ..., lease_end_ms: _Optional[int] = ...) -> None: ...

class DeadLetterRequest(_message.Message):
    __slots__ = ("group", "topic", "receipt_handles")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    receipt_handles: bytes
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., receipt_handles: _Optional[bytes] = ...) -> None: ...

class DeadLetterResponse(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedHandle]
    def __init__(self, refused: _Optional[_Iterable[_Union[RefusedHandle, _Mapping]]] = ...) -> None: ...

class RenewLeasesRequest(_message.Message):
    __slots__ = ("client_ids",)
    CLIENT_IDS_FIELD_NUMBER: _ClassVar[int]
    client_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, client_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RenewLeasesResponse(_message.Message):
    __slots__ = ("renewed_count",)
    RENEWED_COUNT_FIELD_NUMBER: _ClassVar[int]
    renewed_count: int
    def __init__(self, renewed_count: _Optional[int] = ...) -> None: ...

class ReleaseLeasesRequest(_message.Message):
    __slots__ = ("client_ids", "group")
    CLIENT_IDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    client_ids: _containers.RepeatedScalarFieldContainer[str]
    group: str
    def __init__(self, client_ids: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ...) -> None: ...

class ReleaseLeasesResponse(_message.Message):
    __slots__ = ("released_count",)
    RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    released_count: int
    def __init__(self, released_count: _Optional[int] = ...) -> None: ...

class GetLeaseStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaseStatus(_message.Message):
    __slots__ = ("journal_bytes", "problem", "groups")
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    journal_bytes: int
    problem: str
    groups: _containers.RepeatedCompositeFieldContainer[GroupLeases]
    def __init__(self, journal_bytes: _Optional[int] = ..., problem: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[GroupLeases, _Mapping]]] = ...) -> None: ...

class GroupLeases(_message.Message):
    __slots__ = ("group", "leased", "waiting")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    group: str
    leased: int
    waiting: int
    def __init__(self, group: _Optional[str] = ..., leased: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class TrackMessageRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "commit_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    commit_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., commit_offset: _Optional[int] = ...) -> None: ...

class TrackMessageResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[MessageTrack]
    def __init__(self, groups: _Optional[_Iterable[_Union[MessageTrack, _Mapping]]] = ...) -> None: ...

class MessageTrack(_message.Message):
    __slots__ = ("group", "state", "attempts", "until_ms", "client_id", "dead_letter_commit_offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: TrackState
    attempts: int
    until_ms: int
    client_id: str
    dead_letter_commit_offset: int
    def __init__(self, group: _Optional[str] = ..., state: _Optional[_Union[TrackState, str]] = ..., attempts: _Optional[int] = ..., until_ms: _Optional[int] = ..., client_id: _Optional[str] = ..., dead_letter_commit_offset: _Optional[int] = ...) -> None: ...
