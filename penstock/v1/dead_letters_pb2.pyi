from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendDeadLettersRequest(_message.Message):
    __slots__ = ("group", "commit_offsets", "reconsume_times")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    group: str
    commit_offsets: _containers.RepeatedScalarFieldContainer[int]
    reconsume_times: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., commit_offsets: _Optional[_Iterable[int]] = ..., reconsume_times: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendDeadLettersResponse(_message.Message):
    __slots__ = ("record_count", "uncopied")
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNCOPIED_FIELD_NUMBER: _ClassVar[int]
    record_count: int
    uncopied: _containers.RepeatedCompositeFieldContainer[UncopiedRecord]
    def __init__(self, record_count: _Optional[int] = ..., uncopied: _Optional[_Iterable[_Union[UncopiedRecord, _Mapping]]] = ...) -> None: ...

class UncopiedRecord(_message.Message):
    __slots__ = ("index", "reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: str
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
