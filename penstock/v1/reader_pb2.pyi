from penstock.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PullStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PULL_STATUS_UNSPECIFIED: _ClassVar[PullStatus]
    FOUND: _ClassVar[PullStatus]
    NO_MATCHED_MESSAGE: _ClassVar[PullStatus]
    MESSAGE_WAS_REMOVING: _ClassVar[PullStatus]
    OFFSET_FOUND_NULL: _ClassVar[PullStatus]
    OFFSET_OVERFLOW_BADLY: _ClassVar[PullStatus]
    OFFSET_OVERFLOW_ONE: _ClassVar[PullStatus]
    OFFSET_TOO_SMALL: _ClassVar[PullStatus]
    NO_MATCHED_LOGIC_QUEUE: _ClassVar[PullStatus]
    NO_MESSAGE_IN_QUEUE: _ClassVar[PullStatus]

class OffsetPosition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OFFSET_POSITION_UNSPECIFIED: _ClassVar[OffsetPosition]
    EARLIEST: _ClassVar[OffsetPosition]
    LATEST: _ClassVar[OffsetPosition]
    TIME_LOWER: _ClassVar[OffsetPosition]
    TIME_UPPER: _ClassVar[OffsetPosition]
PULL_STATUS_UNSPECIFIED: PullStatus
FOUND: PullStatus
NO_MATCHED_MESSAGE: PullStatus
MESSAGE_WAS_REMOVING: PullStatus
OFFSET_FOUND_NULL: PullStatus
OFFSET_OVERFLOW_BADLY: PullStatus
OFFSET_OVERFLOW_ONE: PullStatus
OFFSET_TOO_SMALL: PullStatus
NO_MATCHED_LOGIC_QUEUE: PullStatus
NO_MESSAGE_IN_QUEUE: PullStatus
OFFSET_POSITION_UNSPECIFIED: OffsetPosition
EARLIEST: OffsetPosition
LATEST: OffsetPosition
TIME_LOWER: OffsetPosition
TIME_UPPER: OffsetPosition

class PullRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "max_messages", "max_bytes", "tag_expression", "wait_ms", "decode")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAG_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int
    tag_expression: str
    wait_ms: int
    decode: bool
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., tag_expression: _Optional[str] = ..., wait_ms: _Optional[int] = ..., decode: _Optional[bool] = ...) -> None: ...

class PullStreamRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "max_bytes", "tag_expression", "follow", "decode", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAG_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    max_bytes: int
    tag_expression: str
    follow: bool
    decode: bool
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., tag_expression: _Optional[str] = ..., follow: _Optional[bool] = ..., decode: _Optional[bool] = ..., end_offset: _Optional[int] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("status", "next_offset", "min_offset", "max_offset", "record_count", "damaged", "decoded", "records")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    DECODED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    record_count: int
    damaged: _containers.RepeatedCompositeFieldContainer[_common_pb2.DamagedRecord]
    decoded: _containers.RepeatedCompositeFieldContainer[_common_pb2.Record]
    records: bytes
    def __init__(self, status: _Optional[_Union[PullStatus, str]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[_common_pb2.DamagedRecord, _Mapping]]] = ..., decoded: _Optional[_Iterable[_Union[_common_pb2.Record, _Mapping]]] = ..., records: _Optional[bytes] = ...) -> None: ...

class QueryByKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "unique", "begin_timestamp_ms", "end_timestamp_ms", "max_messages", "page_token", "decode")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    unique: bool
    begin_timestamp_ms: int
    end_timestamp_ms: int
    max_messages: int
    page_token: str
    decode: bool
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., unique: _Optional[bool] = ..., begin_timestamp_ms: _Optional[int] = ..., end_timestamp_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., page_token: _Optional[str] = ..., decode: _Optional[bool] = ...) -> None: ...

class QueryByKeyResponse(_message.Message):
    __slots__ = ("record_count", "next_page_token", "indexed_offset", "damaged", "decoded", "records", "uncovered")
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INDEXED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    DECODED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNCOVERED_FIELD_NUMBER: _ClassVar[int]
    record_count: int
    next_page_token: str
    indexed_offset: int
    damaged: _containers.RepeatedCompositeFieldContainer[_common_pb2.DamagedRecord]
    decoded: _containers.RepeatedCompositeFieldContainer[_common_pb2.Record]
    records: bytes
    uncovered: _containers.RepeatedCompositeFieldContainer[UncoveredRange]
    def __init__(self, record_count: _Optional[int] = ..., next_page_token: _Optional[str] = ..., indexed_offset: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[_common_pb2.DamagedRecord, _Mapping]]] = ..., decoded: _Optional[_Iterable[_Union[_common_pb2.Record, _Mapping]]] = ..., records: _Optional[bytes] = ..., uncovered: _Optional[_Iterable[_Union[UncoveredRange, _Mapping]]] = ...) -> None: ...

class UncoveredRange(_message.Message):
    __slots__ = ("begin_commit_offset", "end_commit_offset", "file_name", "reason")
    BEGIN_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    begin_commit_offset: int
    end_commit_offset: int
    file_name: str
    reason: str
    def __init__(self, begin_commit_offset: _Optional[int] = ..., end_commit_offset: _Optional[int] = ..., file_name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("message_id", "commit_offset")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    commit_offset: int
    def __init__(self, message_id: _Optional[str] = ..., commit_offset: _Optional[int] = ...) -> None: ...

class GetMessageResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _common_pb2.Record
    def __init__(self, record: _Optional[_Union[_common_pb2.Record, _Mapping]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("topics", "estimate_bytes")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    estimate_bytes: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., estimate_bytes: _Optional[bool] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "topics", "min_commit_offset", "visible_offset", "store_id", "described")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MIN_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBED_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueExtent]
    topics: _containers.RepeatedScalarFieldContainer[str]
    min_commit_offset: int
    visible_offset: int
    store_id: str
    described: _containers.RepeatedCompositeFieldContainer[_common_pb2.Topic]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueExtent, _Mapping]]] = ..., topics: _Optional[_Iterable[str]] = ..., min_commit_offset: _Optional[int] = ..., visible_offset: _Optional[int] = ..., store_id: _Optional[str] = ..., described: _Optional[_Iterable[_Union[_common_pb2.Topic, _Mapping]]] = ...) -> None: ...

class QueueExtent(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "min_commit_offset", "end_commit_offset", "approximate_bytes", "topic_incarnation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPROXIMATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    min_commit_offset: int
    end_commit_offset: int
    approximate_bytes: int
    topic_incarnation: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., min_commit_offset: _Optional[int] = ..., end_commit_offset: _Optional[int] = ..., approximate_bytes: _Optional[int] = ..., topic_incarnation: _Optional[int] = ...) -> None: ...

class QueryOffsetRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "position", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    position: OffsetPosition
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., position: _Optional[_Union[OffsetPosition, str]] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class QueryOffsetResponse(_message.Message):
    __slots__ = ("queue_offset", "min_offset", "max_offset")
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    min_offset: int
    max_offset: int
    def __init__(self, queue_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...

class CommitOffsetRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "queue_offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ...) -> None: ...

class CommitOffsetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchOffsetsRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class FetchOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "min_offset", "max_offset", "lag")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    min_offset: int
    max_offset: int
    lag: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class GetReaderStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReaderStatus(_message.Message):
    __slots__ = ("min_commit_offset", "visible_offset", "indexed_offset", "writer_alive", "sent_record_count", "sent_bytes")
    MIN_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INDEXED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WRITER_ALIVE_FIELD_NUMBER: _ClassVar[int]
    SENT_RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    min_commit_offset: int
    visible_offset: int
    indexed_offset: int
    writer_alive: bool
    sent_record_count: int
    sent_bytes: int
    def __init__(self, min_commit_offset: _Optional[int] = ..., visible_offset: _Optional[int] = ..., indexed_offset: _Optional[int] = ..., writer_alive: _Optional[bool] = ..., sent_record_count: _Optional[int] = ..., sent_bytes: _Optional[int] = ...) -> None: ...
