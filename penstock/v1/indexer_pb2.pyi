from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetIndexerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WaitIndexedRequest(_message.Message):
    __slots__ = ("commit_offset",)
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    commit_offset: int
    def __init__(self, commit_offset: _Optional[int] = ...) -> None: ...

class IndexerStatus(_message.Message):
    __slots__ = ("indexed_offset", "confirm_offset", "durable_offset", "file_count", "key_count", "problem", "damaged_count", "scrub_progress")
    INDEXED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCRUB_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    indexed_offset: int
    confirm_offset: int
    durable_offset: int
    file_count: int
    key_count: int
    problem: str
    damaged_count: int
    scrub_progress: str
    def __init__(self, indexed_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., file_count: _Optional[int] = ..., key_count: _Optional[int] = ..., problem: _Optional[str] = ..., damaged_count: _Optional[int] = ..., scrub_progress: _Optional[str] = ...) -> None: ...
