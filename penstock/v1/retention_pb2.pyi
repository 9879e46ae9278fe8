from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetRetentionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteExpiredRequest(_message.Message):
    __slots__ = ("older_than_ms",)
    OLDER_THAN_MS_FIELD_NUMBER: _ClassVar[int]
    older_than_ms: int
    def __init__(self, older_than_ms: _Optional[int] = ...) -> None: ...

class RetentionReport(_message.Message):
    __slots__ = ("retention_ms", "delete_hours", "clean_percent", "force_percent", "refuse_percent", "used_percent", "refuses_appends", "problem", "min_commit_offset", "deleted_file_count", "deleted_bytes", "last_deleted_ms", "holds", "files", "is_deleting")
    class HoldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DELETE_HOURS_FIELD_NUMBER: _ClassVar[int]
    CLEAN_PERCENT_FIELD_NUMBER: _ClassVar[int]
    FORCE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    REFUSE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    USED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    REFUSES_APPENDS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MIN_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELETED_FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELETED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_DELETED_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    IS_DELETING_FIELD_NUMBER: _ClassVar[int]
    retention_ms: int
    delete_hours: _containers.RepeatedScalarFieldContainer[int]
    clean_percent: int
    force_percent: int
    refuse_percent: int
    used_percent: int
    refuses_appends: bool
    problem: str
    min_commit_offset: int
    deleted_file_count: int
    deleted_bytes: int
    last_deleted_ms: int
    holds: _containers.ScalarMap[str, int]
    files: _containers.RepeatedCompositeFieldContainer[RetainedFile]
    is_deleting: bool
    def __init__(self, retention_ms: _Optional[int] = ..., delete_hours: _Optional[_Iterable[int]] = ..., clean_percent: _Optional[int] = ..., force_percent: _Optional[int] = ..., refuse_percent: _Optional[int] = ..., used_percent: _Optional[int] = ..., refuses_appends: _Optional[bool] = ..., problem: _Optional[str] = ..., min_commit_offset: _Optional[int] = ..., deleted_file_count: _Optional[int] = ..., deleted_bytes: _Optional[int] = ..., last_deleted_ms: _Optional[int] = ..., holds: _Optional[_Mapping[str, int]] = ..., files: _Optional[_Iterable[_Union[RetainedFile, _Mapping]]] = ..., is_deleting: _Optional[bool] = ...) -> None: ...

class RetainedFile(_message.Message):
    __slots__ = ("start_offset", "size_bytes", "modified_ms", "expires_ms", "held_by", "is_newest")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    IS_NEWEST_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    size_bytes: int
    modified_ms: int
    expires_ms: int
    held_by: _containers.RepeatedScalarFieldContainer[str]
    is_newest: bool
    def __init__(self, start_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., modified_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., held_by: _Optional[_Iterable[str]] = ..., is_newest: _Optional[bool] = ...) -> None: ...
