"""Messages of the contract that client and services frame by hand, so that records are not copied."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

_LENGTH_DELIMITED: Final = 2
_SCALAR_SIZES: Final = {1: 8, 5: 4}  # fixed64 and fixed32 by wire type
_RECORDS_TAG: Final = b"\x0a"  # of ProduceBatchRequest


@dataclass(frozen=True, slots=True)
class WithRecords:
    """A message split in two: what protobuf parsed, and the records as they came."""

    front: Any
    records: memoryview


def framed_batch(
    parts: Iterable[bytes | bytearray | memoryview], size: int, producer: bytes = b""
) -> bytes:
    """Return a serialized ``ProduceBatchRequest`` around ``size`` bytes of records, copying them once.

    ``producer`` is its other field, serialized.
    """
    return b"".join((producer, _RECORDS_TAG, varint(size), *parts))


def split_records(message: bytes, kind: type[Message], field_number: int) -> WithRecords:
    """Return a serialized message split at its records field, when that comes last.

    A message in another field order is valid protobuf too and is parsed whole. Raises protobuf's
    DecodeError.
    """
    wanted = field_number << 3 | _LENGTH_DELIMITED
    position = 0
    end = len(message)
    with suppress(IndexError):  # what is cut short the parser refuses
        while position < end:
            start = position
            key, position = read_varint(message, position)
            wire_type = key & 7
            if wire_type == _LENGTH_DELIMITED:
                length, position = read_varint(message, position)
                if key == wanted and position + length == end:
                    front = kind.FromString(message[:start])
                    return WithRecords(front, memoryview(message)[position:])
                position += length
            elif wire_type == 0:
                _, position = read_varint(message, position)
            elif wire_type in _SCALAR_SIZES:
                position += _SCALAR_SIZES[wire_type]
            else:
                break
    whole = kind.FromString(message)
    return WithRecords(whole, memoryview(getattr(whole, "records")))  # noqa: B009  kind is generic


def varint(value: int) -> bytes:
    """Return a non-negative integer as protobuf writes it."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer of at most ten bytes at a position, and the position after it. Raises IndexError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, at
