from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetSettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunningSettings(_message.Message):
    __slots__ = ("log_level", "access_log", "slow_call_ms")
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ACCESS_LOG_FIELD_NUMBER: _ClassVar[int]
    SLOW_CALL_MS_FIELD_NUMBER: _ClassVar[int]
    log_level: str
    access_log: str
    slow_call_ms: int
    def __init__(self, log_level: _Optional[str] = ..., access_log: _Optional[str] = ..., slow_call_ms: _Optional[int] = ...) -> None: ...

class UpdateSettingsRequest(_message.Message):
    __slots__ = ("log_level", "access_log", "slow_call_ms")
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ACCESS_LOG_FIELD_NUMBER: _ClassVar[int]
    SLOW_CALL_MS_FIELD_NUMBER: _ClassVar[int]
    log_level: str
    access_log: str
    slow_call_ms: int
    def __init__(self, log_level: _Optional[str] = ..., access_log: _Optional[str] = ..., slow_call_ms: _Optional[int] = ...) -> None: ...
