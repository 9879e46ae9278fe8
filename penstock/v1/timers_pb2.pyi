from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RecallRequest(_message.Message):
    __slots__ = ("recall_handle", "topic")
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    recall_handle: str
    topic: str
    def __init__(self, recall_handle: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class RecallResponse(_message.Message):
    __slots__ = ("unique_key",)
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    unique_key: str
    def __init__(self, unique_key: _Optional[str] = ...) -> None: ...

class CountTimersRequest(_message.Message):
    __slots__ = ("within_ms",)
    WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    within_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, within_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class CountTimersResponse(_message.Message):
    __slots__ = ("pending_count", "next_due_ms", "due_counts", "delivered_count", "recalled_count", "topic_deleted_count", "damaged_count", "repeated_count")
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECALLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPEATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    pending_count: int
    next_due_ms: int
    due_counts: _containers.RepeatedScalarFieldContainer[int]
    delivered_count: int
    recalled_count: int
    topic_deleted_count: int
    damaged_count: int
    repeated_count: int
    def __init__(self, pending_count: _Optional[int] = ..., next_due_ms: _Optional[int] = ..., due_counts: _Optional[_Iterable[int]] = ..., delivered_count: _Optional[int] = ..., recalled_count: _Optional[int] = ..., topic_deleted_count: _Optional[int] = ..., damaged_count: _Optional[int] = ..., repeated_count: _Optional[int] = ...) -> None: ...
