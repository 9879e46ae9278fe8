from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StageRecordsRequest(_message.Message):
    __slots__ = ("records", "stage")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    stage: StageHeader
    def __init__(self, records: _Optional[bytes] = ..., stage: _Optional[_Union[StageHeader, _Mapping]] = ...) -> None: ...

class StageHeader(_message.Message):
    __slots__ = ("app_id", "version", "attempt", "one_off")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ONE_OFF_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    version: int
    attempt: str
    one_off: bool
    def __init__(self, app_id: _Optional[str] = ..., version: _Optional[int] = ..., attempt: _Optional[str] = ..., one_off: _Optional[bool] = ...) -> None: ...

class StageRecordsResponse(_message.Message):
    __slots__ = ("record_count", "byte_count", "decided")
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    record_count: int
    byte_count: int
    decided: bool
    def __init__(self, record_count: _Optional[int] = ..., byte_count: _Optional[int] = ..., decided: _Optional[bool] = ...) -> None: ...

class CommitStagedRequest(_message.Message):
    __slots__ = ("app_id", "version", "attempts", "one_off")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ONE_OFF_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    version: int
    attempts: _containers.RepeatedScalarFieldContainer[str]
    one_off: bool
    def __init__(self, app_id: _Optional[str] = ..., version: _Optional[int] = ..., attempts: _Optional[_Iterable[str]] = ..., one_off: _Optional[bool] = ...) -> None: ...

class CommitStagedResponse(_message.Message):
    __slots__ = ("already_committed", "committed")
    ALREADY_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    already_committed: bool
    committed: CommitOutcome
    def __init__(self, already_committed: _Optional[bool] = ..., committed: _Optional[_Union[CommitOutcome, _Mapping]] = ...) -> None: ...

class CommitOutcome(_message.Message):
    __slots__ = ("version", "commit_offset", "end_commit_offset", "record_count", "committed_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    commit_offset: int
    end_commit_offset: int
    record_count: int
    committed_ms: int
    def __init__(self, version: _Optional[int] = ..., commit_offset: _Optional[int] = ..., end_commit_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., committed_ms: _Optional[int] = ...) -> None: ...

class AbortStagedRequest(_message.Message):
    __slots__ = ("app_id", "version", "attempts", "all")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    version: int
    attempts: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    def __init__(self, app_id: _Optional[str] = ..., version: _Optional[int] = ..., attempts: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ...) -> None: ...

class AbortStagedResponse(_message.Message):
    __slots__ = ("removed_count",)
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    removed_count: int
    def __init__(self, removed_count: _Optional[int] = ...) -> None: ...

class ListStagedCommitsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListStagedCommitsResponse(_message.Message):
    __slots__ = ("applications",)
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    applications: _containers.RepeatedCompositeFieldContainer[StagedApplication]
    def __init__(self, applications: _Optional[_Iterable[_Union[StagedApplication, _Mapping]]] = ...) -> None: ...

class StagedApplication(_message.Message):
    __slots__ = ("app_id", "last_version", "last", "open", "problem")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    last_version: int
    last: CommitOutcome
    open: _containers.RepeatedCompositeFieldContainer[OpenStagedCommit]
    problem: str
    def __init__(self, app_id: _Optional[str] = ..., last_version: _Optional[int] = ..., last: _Optional[_Union[CommitOutcome, _Mapping]] = ..., open: _Optional[_Iterable[_Union[OpenStagedCommit, _Mapping]]] = ..., problem: _Optional[str] = ...) -> None: ...

class OpenStagedCommit(_message.Message):
    __slots__ = ("version", "decided", "problem", "stages")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    version: int
    decided: bool
    problem: str
    stages: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    def __init__(self, version: _Optional[int] = ..., decided: _Optional[bool] = ..., problem: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[StagedAttempt, _Mapping]]] = ...) -> None: ...

class StagedAttempt(_message.Message):
    __slots__ = ("attempt", "record_count", "byte_count", "created_ms")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    attempt: str
    record_count: int
    byte_count: int
    created_ms: int
    def __init__(self, attempt: _Optional[str] = ..., record_count: _Optional[int] = ..., byte_count: _Optional[int] = ..., created_ms: _Optional[int] = ...) -> None: ...
