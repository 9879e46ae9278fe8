from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupBegin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_BEGIN_UNSPECIFIED: _ClassVar[GroupBegin]
    FROM_EARLIEST: _ClassVar[GroupBegin]
    FROM_LATEST: _ClassVar[GroupBegin]
GROUP_BEGIN_UNSPECIFIED: GroupBegin
FROM_EARLIEST: GroupBegin
FROM_LATEST: GroupBegin

class GroupSettings(_message.Message):
    __slots__ = ("name", "retry_max_times", "orderly", "consume_enable", "backoff", "begin")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RETRY_MAX_TIMES_FIELD_NUMBER: _ClassVar[int]
    ORDERLY_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLE_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    retry_max_times: int
    orderly: bool
    consume_enable: bool
    backoff: Backoff
    begin: GroupBegin
    def __init__(self, name: _Optional[str] = ..., retry_max_times: _Optional[int] = ..., orderly: _Optional[bool] = ..., consume_enable: _Optional[bool] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., begin: _Optional[_Union[GroupBegin, str]] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("customized", "exponential")
    CUSTOMIZED_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    customized: CustomizedBackoff
    exponential: ExponentialBackoff
    def __init__(self, customized: _Optional[_Union[CustomizedBackoff, _Mapping]] = ..., exponential: _Optional[_Union[ExponentialBackoff, _Mapping]] = ...) -> None: ...

class CustomizedBackoff(_message.Message):
    __slots__ = ("next_ms",)
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    next_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, next_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class ExponentialBackoff(_message.Message):
    __slots__ = ("initial_ms", "max_ms", "multiplier")
    INITIAL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    initial_ms: int
    max_ms: int
    multiplier: int
    def __init__(self, initial_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., multiplier: _Optional[int] = ...) -> None: ...

class CreateGroupRequest(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ...) -> None: ...

class UpdateGroupRequest(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("settings", "queues")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    queues: _containers.RepeatedCompositeFieldContainer[GroupQueue]
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[GroupQueue, _Mapping]]] = ...) -> None: ...

class GroupQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "group_offset", "next_offset", "leased", "waiting", "lag")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GROUP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    group_offset: int
    next_offset: int
    leased: int
    waiting: int
    lag: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., group_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., leased: _Optional[int] = ..., waiting: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupSettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupSettingsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSettings]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSettings, _Mapping]]] = ...) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_ids", "begin", "timestamp_ms", "queue_offset", "preview")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    begin: GroupBegin
    timestamp_ms: int
    queue_offset: int
    preview: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ..., begin: _Optional[_Union[GroupBegin, str]] = ..., timestamp_ms: _Optional[int] = ..., queue_offset: _Optional[int] = ..., preview: _Optional[bool] = ...) -> None: ...

class ResetGroupResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[GroupReset]
    def __init__(self, queues: _Optional[_Iterable[_Union[GroupReset, _Mapping]]] = ...) -> None: ...

class GroupReset(_message.Message):
    __slots__ = ("topic", "queue_id", "from_offset", "to_offset", "lag_before", "lag_after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LAG_AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    lag_before: int
    lag_after: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., lag_before: _Optional[int] = ..., lag_after: _Optional[int] = ...) -> None: ...
