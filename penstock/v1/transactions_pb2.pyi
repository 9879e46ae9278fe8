from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Resolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESOLUTION_UNSPECIFIED: _ClassVar[Resolution]
    RESOLUTION_COMMIT: _ClassVar[Resolution]
    RESOLUTION_ROLLBACK: _ClassVar[Resolution]

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_STATE_UNSPECIFIED: _ClassVar[TransactionState]
    TRANSACTION_PENDING: _ClassVar[TransactionState]
    TRANSACTION_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_ROLLED_BACK: _ClassVar[TransactionState]
    TRANSACTION_GIVEN_UP: _ClassVar[TransactionState]
    TRANSACTION_NOT_FOUND: _ClassVar[TransactionState]
    TRANSACTION_OTHER_TOPIC: _ClassVar[TransactionState]
    TRANSACTION_TOPIC_GONE: _ClassVar[TransactionState]
    TRANSACTION_DAMAGED: _ClassVar[TransactionState]
RESOLUTION_UNSPECIFIED: Resolution
RESOLUTION_COMMIT: Resolution
RESOLUTION_ROLLBACK: Resolution
TRANSACTION_STATE_UNSPECIFIED: TransactionState
TRANSACTION_PENDING: TransactionState
TRANSACTION_COMMITTED: TransactionState
TRANSACTION_ROLLED_BACK: TransactionState
TRANSACTION_GIVEN_UP: TransactionState
TRANSACTION_NOT_FOUND: TransactionState
TRANSACTION_OTHER_TOPIC: TransactionState
TRANSACTION_TOPIC_GONE: TransactionState
TRANSACTION_DAMAGED: TransactionState

class PrepareRequest(_message.Message):
    __slots__ = ("records", "transaction_id", "immunity_s", "key_prefix")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    IMMUNITY_S_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    transaction_id: str
    immunity_s: int
    key_prefix: str
    def __init__(self, records: _Optional[bytes] = ..., transaction_id: _Optional[str] = ..., immunity_s: _Optional[int] = ..., key_prefix: _Optional[str] = ...) -> None: ...

class PrepareResponse(_message.Message):
    __slots__ = ("transaction_ids", "half_offsets")
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    HALF_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    transaction_ids: _containers.RepeatedScalarFieldContainer[str]
    half_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, transaction_ids: _Optional[_Iterable[str]] = ..., half_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class EndTransactionsRequest(_message.Message):
    __slots__ = ("transaction_ids", "resolution", "topic")
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    transaction_ids: _containers.RepeatedScalarFieldContainer[str]
    resolution: Resolution
    topic: str
    def __init__(self, transaction_ids: _Optional[_Iterable[str]] = ..., resolution: _Optional[_Union[Resolution, str]] = ..., topic: _Optional[str] = ...) -> None: ...

class EndTransactionsResponse(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[EndedTransaction]
    def __init__(self, transactions: _Optional[_Iterable[_Union[EndedTransaction, _Mapping]]] = ...) -> None: ...

class EndedTransaction(_message.Message):
    __slots__ = ("transaction_id", "state", "message_count", "already", "problem")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    state: TransactionState
    message_count: int
    already: bool
    problem: str
    def __init__(self, transaction_id: _Optional[str] = ..., state: _Optional[_Union[TransactionState, str]] = ..., message_count: _Optional[int] = ..., already: _Optional[bool] = ..., problem: _Optional[str] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "pending_count")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[PendingTransaction]
    pending_count: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[PendingTransaction, _Mapping]]] = ..., pending_count: _Optional[int] = ...) -> None: ...

class PendingTransaction(_message.Message):
    __slots__ = ("transaction_id", "topics", "message_count", "born_ms", "due_ms", "check_count", "problem")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    CHECK_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    message_count: int
    born_ms: int
    due_ms: int
    check_count: int
    problem: str
    def __init__(self, transaction_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., message_count: _Optional[int] = ..., born_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., check_count: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class ReturnChecksRequest(_message.Message):
    __slots__ = ("checks",)
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedCompositeFieldContainer[ReturnedCheck]
    def __init__(self, checks: _Optional[_Iterable[_Union[ReturnedCheck, _Mapping]]] = ...) -> None: ...

class ReturnedCheck(_message.Message):
    __slots__ = ("transaction_id", "check_count")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    CHECK_COUNT_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    check_count: int
    def __init__(self, transaction_id: _Optional[str] = ..., check_count: _Optional[int] = ...) -> None: ...

class ReturnChecksResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchChecksRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class TransactionCheck(_message.Message):
    __slots__ = ("transaction_id", "topics", "check_count", "message_count", "records")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CHECK_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    check_count: int
    message_count: int
    records: bytes
    def __init__(self, transaction_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., check_count: _Optional[int] = ..., message_count: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...
