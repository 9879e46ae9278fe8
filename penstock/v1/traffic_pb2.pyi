from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetTrafficRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrafficReport(_message.Message):
    __slots__ = ("stored", "sent", "lags", "lags_at_ms")
    STORED_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    LAGS_FIELD_NUMBER: _ClassVar[int]
    LAGS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    stored: _containers.RepeatedCompositeFieldContainer[StoredTraffic]
    sent: _containers.RepeatedCompositeFieldContainer[SentTraffic]
    lags: _containers.RepeatedCompositeFieldContainer[GroupLag]
    lags_at_ms: int
    def __init__(self, stored: _Optional[_Iterable[_Union[StoredTraffic, _Mapping]]] = ..., sent: _Optional[_Iterable[_Union[SentTraffic, _Mapping]]] = ..., lags: _Optional[_Iterable[_Union[GroupLag, _Mapping]]] = ..., lags_at_ms: _Optional[int] = ...) -> None: ...

class StoredTraffic(_message.Message):
    __slots__ = ("topic", "messages", "bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: int
    bytes: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SentTraffic(_message.Message):
    __slots__ = ("topic", "group", "messages", "bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    messages: int
    bytes: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class GroupLag(_message.Message):
    __slots__ = ("group", "topic", "lag", "leased", "ready", "done", "oldest_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    lag: int
    leased: int
    ready: int
    done: int
    oldest_ms: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., lag: _Optional[int] = ..., leased: _Optional[int] = ..., ready: _Optional[int] = ..., done: _Optional[int] = ..., oldest_ms: _Optional[int] = ...) -> None: ...
