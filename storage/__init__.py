"""The storage engine. Names are loaded when first used, so that importing one format stays light."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.config import StoreConfig
    from storage.message import BatchResult, Message, PullResult, PullStatus, PutResult
    from storage.reader import StoreReader
    from storage.store import MessageStore
    from storage.writer import StoreWriter

__all__ = [
    "BatchResult",
    "Message",
    "MessageStore",
    "PullResult",
    "PullStatus",
    "PutResult",
    "StoreConfig",
    "StoreReader",
    "StoreWriter",
]

_HOMES: Final = {
    "BatchResult": "storage.message",
    "Message": "storage.message",
    "MessageStore": "storage.store",
    "PullResult": "storage.message",
    "PullStatus": "storage.message",
    "PutResult": "storage.message",
    "StoreConfig": "storage.config",
    "StoreReader": "storage.reader",
    "StoreWriter": "storage.writer",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'storage' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
