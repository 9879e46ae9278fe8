"""What kinds of messages a topic takes: its attribute ``message.type``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from services.gateway.v2 import definition_pb2 as v2
from storage.tables.topics import MESSAGE_TYPE

_MIXED: Final = (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)
_BY_ATTRIBUTE: Final[Mapping[str, tuple[v2.MessageType, ...]]] = {
    "NORMAL": (v2.NORMAL,),
    "FIFO": (v2.FIFO,),
    "DELAY": (v2.DELAY,),
    "TRANSACTION": (v2.TRANSACTION,),
    "MIXED": _MIXED,
}


def accepted_types(attributes: Mapping[str, str]) -> tuple[v2.MessageType, ...]:
    """Return the types that a topic takes; without the attribute, NORMAL."""
    return _BY_ATTRIBUTE.get(attributes.get(MESSAGE_TYPE, "").upper(), (v2.NORMAL,))


def type_of(message: v2.Message) -> v2.MessageType:
    """Return what a message is, by its fields first, then by what it says."""
    system = message.system_properties
    if system.message_type == v2.TRANSACTION:
        return v2.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return v2.DELAY
    if system.HasField("message_group"):
        return v2.FIFO
    return system.message_type
