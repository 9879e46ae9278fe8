from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UserKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USER_KIND_UNSPECIFIED: _ClassVar[UserKind]
    NORMAL: _ClassVar[UserKind]
    SUPER: _ClassVar[UserKind]
    SERVICE: _ClassVar[UserKind]
USER_KIND_UNSPECIFIED: UserKind
NORMAL: UserKind
SUPER: UserKind
SERVICE: UserKind

class GetRulesRequest(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class RulesSnapshot(_message.Message):
    __slots__ = ("generation", "document")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    generation: int
    document: bytes
    def __init__(self, generation: _Optional[int] = ..., document: _Optional[bytes] = ...) -> None: ...

class VerifySignatureRequest(_message.Message):
    __slots__ = ("access_key", "date", "signature")
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    date: str
    signature: str
    def __init__(self, access_key: _Optional[str] = ..., date: _Optional[str] = ..., signature: _Optional[str] = ...) -> None: ...

class VerifySignatureResponse(_message.Message):
    __slots__ = ("secret_id",)
    SECRET_ID_FIELD_NUMBER: _ClassVar[int]
    secret_id: str
    def __init__(self, secret_id: _Optional[str] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("name", "kind", "enabled", "secret_count", "limits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    SECRET_COUNT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: UserKind
    enabled: bool
    secret_count: int
    limits: Limits
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[UserKind, str]] = ..., enabled: _Optional[bool] = ..., secret_count: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("requests_per_second", "bytes_per_second", "calls_max", "call_bytes_max", "connections_max")
    REQUESTS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CALLS_MAX_FIELD_NUMBER: _ClassVar[int]
    CALL_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    requests_per_second: int
    bytes_per_second: int
    calls_max: int
    call_bytes_max: int
    connections_max: int
    def __init__(self, requests_per_second: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., calls_max: _Optional[int] = ..., call_bytes_max: _Optional[int] = ..., connections_max: _Optional[int] = ...) -> None: ...

class UserWithSecret(_message.Message):
    __slots__ = ("user", "secret_key")
    USER_FIELD_NUMBER: _ClassVar[int]
    SECRET_KEY_FIELD_NUMBER: _ClassVar[int]
    user: User
    secret_key: str
    def __init__(self, user: _Optional[_Union[User, _Mapping]] = ..., secret_key: _Optional[str] = ...) -> None: ...

class CreateUserRequest(_message.Message):
    __slots__ = ("name", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: UserKind
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[UserKind, str]] = ...) -> None: ...

class UpdateUserRequest(_message.Message):
    __slots__ = ("name", "enabled", "kind", "add_secret", "drop_old_secrets", "limits", "reset_limits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADD_SECRET_FIELD_NUMBER: _ClassVar[int]
    DROP_OLD_SECRETS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RESET_LIMITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    enabled: bool
    kind: UserKind
    add_secret: bool
    drop_old_secrets: bool
    limits: Limits
    reset_limits: bool
    def __init__(self, name: _Optional[str] = ..., enabled: _Optional[bool] = ..., kind: _Optional[_Union[UserKind, str]] = ..., add_secret: _Optional[bool] = ..., drop_old_secrets: _Optional[bool] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., reset_limits: _Optional[bool] = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[User]
    def __init__(self, users: _Optional[_Iterable[_Union[User, _Mapping]]] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("user", "resource", "actions", "sources", "deny", "default")
    USER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    user: str
    resource: str
    actions: _containers.RepeatedScalarFieldContainer[str]
    sources: _containers.RepeatedScalarFieldContainer[str]
    deny: bool
    default: bool
    def __init__(self, user: _Optional[str] = ..., resource: _Optional[str] = ..., actions: _Optional[_Iterable[str]] = ..., sources: _Optional[_Iterable[str]] = ..., deny: _Optional[bool] = ..., default: _Optional[bool] = ...) -> None: ...

class PutPolicyRequest(_message.Message):
    __slots__ = ("policy", "exists")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    exists: bool
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ..., exists: _Optional[bool] = ...) -> None: ...

class DeletePoliciesRequest(_message.Message):
    __slots__ = ("user", "resource")
    USER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    user: str
    resource: str
    def __init__(self, user: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class DeletePoliciesResponse(_message.Message):
    __slots__ = ("deleted_count",)
    DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    deleted_count: int
    def __init__(self, deleted_count: _Optional[int] = ...) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...
