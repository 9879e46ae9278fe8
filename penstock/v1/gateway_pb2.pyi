from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListClientsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListClientsResponse(_message.Message):
    __slots__ = ("clients",)
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedCompositeFieldContainer[ConnectedClient]
    def __init__(self, clients: _Optional[_Iterable[_Union[ConnectedClient, _Mapping]]] = ...) -> None: ...

class ConnectedClient(_message.Message):
    __slots__ = ("client_id", "kind", "group", "topics", "language", "version", "peer", "silent_ms", "renews_leases")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    RENEWS_LEASES_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    kind: str
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    language: str
    version: str
    peer: str
    silent_ms: int
    renews_leases: bool
    def __init__(self, client_id: _Optional[str] = ..., kind: _Optional[str] = ..., group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., language: _Optional[str] = ..., version: _Optional[str] = ..., peer: _Optional[str] = ..., silent_ms: _Optional[int] = ..., renews_leases: _Optional[bool] = ...) -> None: ...
