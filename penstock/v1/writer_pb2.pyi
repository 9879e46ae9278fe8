from penstock.v1 import common_pb2 as _common_pb2
from penstock.v1 import staged_commits_pb2 as _staged_commits_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProducerSequence(_message.Message):
    __slots__ = ("producer_id", "sequence", "age_ms")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    sequence: int
    age_ms: int
    def __init__(self, producer_id: _Optional[int] = ..., sequence: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("messages", "producer")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    producer: ProducerSequence
    def __init__(self, messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ..., producer: _Optional[_Union[ProducerSequence, _Mapping]] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("results", "repeated")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ProduceResult]
    repeated: bool
    def __init__(self, results: _Optional[_Iterable[_Union[ProduceResult, _Mapping]]] = ..., repeated: _Optional[bool] = ...) -> None: ...

class ProduceResult(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "commit_offset", "message_id", "unique_key", "store_timestamp_ms", "recall_handle")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    commit_offset: int
    message_id: str
    unique_key: str
    store_timestamp_ms: int
    recall_handle: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., commit_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., unique_key: _Optional[str] = ..., store_timestamp_ms: _Optional[int] = ..., recall_handle: _Optional[str] = ...) -> None: ...

class ProduceBatchRequest(_message.Message):
    __slots__ = ("records", "producer")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    producer: ProducerSequence
    def __init__(self, records: _Optional[bytes] = ..., producer: _Optional[_Union[ProducerSequence, _Mapping]] = ...) -> None: ...

class ProduceBatchResponse(_message.Message):
    __slots__ = ("commit_offset", "end_commit_offset", "record_count", "store_timestamp_ms", "ranges", "repeated")
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    commit_offset: int
    end_commit_offset: int
    record_count: int
    store_timestamp_ms: int
    ranges: _containers.RepeatedCompositeFieldContainer[QueueRange]
    repeated: bool
    def __init__(self, commit_offset: _Optional[int] = ..., end_commit_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[QueueRange, _Mapping]]] = ..., repeated: _Optional[bool] = ...) -> None: ...

class QueueRange(_message.Message):
    __slots__ = ("topic", "queue_id", "first_queue_offset", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    first_queue_offset: int
    count: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., first_queue_offset: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ProduceStreamResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[FrameOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[FrameOutcome, _Mapping]]] = ...) -> None: ...

class FrameOutcome(_message.Message):
    __slots__ = ("stored", "failure")
    STORED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    stored: ProduceBatchResponse
    failure: _common_pb2.Failure
    def __init__(self, stored: _Optional[_Union[ProduceBatchResponse, _Mapping]] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "queue_count", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    queue_count: int
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., queue_count: _Optional[int] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CreateTopicRequest]
    def __init__(self, topics: _Optional[_Iterable[_Union[CreateTopicRequest, _Mapping]]] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[_common_pb2.Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[_common_pb2.Topic, _Mapping]]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("name", "queue_count", "perm", "attributes", "read_queue_count", "write_queue_count", "force")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    queue_count: int
    perm: int
    attributes: _containers.ScalarMap[str, str]
    read_queue_count: int
    write_queue_count: int
    force: bool
    def __init__(self, name: _Optional[str] = ..., queue_count: _Optional[int] = ..., perm: _Optional[int] = ..., attributes: _Optional[_Mapping[str, str]] = ..., read_queue_count: _Optional[int] = ..., write_queue_count: _Optional[int] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "queues")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    topic: _common_pb2.Topic
    queues: _containers.RepeatedCompositeFieldContainer[QueueState]
    def __init__(self, topic: _Optional[_Union[_common_pb2.Topic, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueState, _Mapping]]] = ...) -> None: ...

class QueueState(_message.Message):
    __slots__ = ("queue_id", "min_offset", "max_offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    min_offset: int
    max_offset: int
    def __init__(self, queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[_common_pb2.Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[_common_pb2.Topic, _Mapping]]] = ...) -> None: ...

class GetWriterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WriterStatus(_message.Message):
    __slots__ = ("min_commit_offset", "appended_offset", "committed_offset", "flushed_offset", "dispatched_offset", "writable", "problem", "flush_mode", "transient_pool", "scrub_position", "scrub_end", "scrub_completed_ms", "scrub_finding_count", "scrub_repaired_count", "scrub_last_finding", "pending_timer_count", "next_timer_due_ms", "timers_late_ms", "pending_half_count", "oldest_half_ms", "needed_commit_offset", "held_by", "stored_record_count")
    MIN_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MODE_FIELD_NUMBER: _ClassVar[int]
    TRANSIENT_POOL_FIELD_NUMBER: _ClassVar[int]
    SCRUB_POSITION_FIELD_NUMBER: _ClassVar[int]
    SCRUB_END_FIELD_NUMBER: _ClassVar[int]
    SCRUB_COMPLETED_MS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FINDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCRUB_REPAIRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCRUB_LAST_FINDING_FIELD_NUMBER: _ClassVar[int]
    PENDING_TIMER_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMER_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TIMERS_LATE_MS_FIELD_NUMBER: _ClassVar[int]
    PENDING_HALF_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_HALF_MS_FIELD_NUMBER: _ClassVar[int]
    NEEDED_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    STORED_RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    min_commit_offset: int
    appended_offset: int
    committed_offset: int
    flushed_offset: int
    dispatched_offset: int
    writable: bool
    problem: str
    flush_mode: str
    transient_pool: bool
    scrub_position: int
    scrub_end: int
    scrub_completed_ms: int
    scrub_finding_count: int
    scrub_repaired_count: int
    scrub_last_finding: str
    pending_timer_count: int
    next_timer_due_ms: int
    timers_late_ms: int
    pending_half_count: int
    oldest_half_ms: int
    needed_commit_offset: int
    held_by: str
    stored_record_count: int
    def __init__(self, min_commit_offset: _Optional[int] = ..., appended_offset: _Optional[int] = ..., committed_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ..., writable: _Optional[bool] = ..., problem: _Optional[str] = ..., flush_mode: _Optional[str] = ..., transient_pool: _Optional[bool] = ..., scrub_position: _Optional[int] = ..., scrub_end: _Optional[int] = ..., scrub_completed_ms: _Optional[int] = ..., scrub_finding_count: _Optional[int] = ..., scrub_repaired_count: _Optional[int] = ..., scrub_last_finding: _Optional[str] = ..., pending_timer_count: _Optional[int] = ..., next_timer_due_ms: _Optional[int] = ..., timers_late_ms: _Optional[int] = ..., pending_half_count: _Optional[int] = ..., oldest_half_ms: _Optional[int] = ..., needed_commit_offset: _Optional[int] = ..., held_by: _Optional[str] = ..., stored_record_count: _Optional[int] = ...) -> None: ...
