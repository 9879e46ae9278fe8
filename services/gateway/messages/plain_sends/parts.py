"""Parts of a plain request: heads of fields, times, digests, and texts that go into a record."""

from __future__ import annotations

from typing import Any, Final

from services.gateway.messages.plain_sends.fields import TEXTS_MAX, USER_AT
from services.gateway.messages.times import TIME_MS_MAX
from services.gateway.v2 import definition_pb2 as v2
from services.varint_kernels import DELIMITED, FIELDS_MAX, VARINT, read_varint
from storage.format import properties
from storage.kernels.message_slices import is_plain_text
from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.jit import i64, inner
from storage.kernels.properties import reserved_names
from storage.kernels.record_parts import write_pair

DIGEST_TYPE: Final = v2.Digest.TYPE_FIELD_NUMBER
DIGEST_CHECKSUM: Final = v2.Digest.CHECKSUM_FIELD_NUMBER
_SPACE: Final = 0x20
_DELETE: Final = 0x7F
is_reserved: Final = reserved_names(
    properties.RESERVED | properties.STORE_ONLY | {properties.SHARDING_KEY}
)


@inner
def is_printable(data: Any, begin: int, end: int) -> bool:
    """Whether bytes are visible ASCII and spaces."""
    for i in range(begin, end):
        byte = read_u8(data, i)
        if byte < _SPACE or byte >= _DELETE:
            return False
    return True


@inner
def read_head(data: Any, at: int, end: int) -> tuple[int, int, int, int]:
    """``(field number, kind, value, position after it)`` of a field; a position of -1 if it is none.

    The value of a delimited field is its size, and its bytes are there.
    """
    tag, at = read_varint(data, at, end)
    number = tag >> 3
    kind = tag & 7
    if at < 0 or not 0 < number < FIELDS_MAX or kind not in (VARINT, DELIMITED):
        return i64(0), i64(0), i64(0), i64(-1)
    value, at = read_varint(data, at, end)
    if at < 0 or (kind == DELIMITED and value > end - at):
        return i64(0), i64(0), i64(0), i64(-1)
    return i64(number), i64(kind), value, at


@inner
def is_digest(data: Any, at: int, end: int) -> bool:
    """Whether bytes are a digest, which is not looked at."""
    last = i64(0)
    while at < end:
        number, kind, size, at = read_head(data, at, end)
        if at < 0 or number <= last or number > DIGEST_CHECKSUM:
            return False
        if kind != (VARINT if number == DIGEST_TYPE else DELIMITED):
            return False
        if kind == DELIMITED:
            if not is_printable(data, at, at + size):
                return False
            at += size
        last = number
    return True


@inner
def read_time(data: Any, at: int, end: int) -> int:
    """Return Unix milliseconds of a timestamp, -1 if it is not one of the years 1970 to 9999."""
    seconds = i64(0)
    nanos = i64(0)
    last = i64(0)
    while at < end:
        number, kind, value, at = read_head(data, at, end)
        if at < 0 or number <= last or number > 2 or kind != VARINT:
            return i64(-1)
        if number == 1:
            seconds = value
        else:
            nanos = value
        last = number
    if seconds > TIME_MS_MAX // 1_000 or nanos > 999_999_999:
        return i64(-1)
    return i64(seconds * 1_000 + nanos // 1_000_000)


@inner
def has_user_property(data: Any, user_end: int, name: int, size: int) -> bool:
    """Whether a user property of that name was added before."""
    at = i64(USER_AT)
    while at < user_end:
        i = i64(0)
        while i < size and read_u8(data, at + i) == read_u8(data, name + i):
            i += 1
        if i == size and read_u8(data, at + i) == properties.NAME_END:
            return True
        while read_u8(data, at) != properties.PROPERTY_END:
            at += 1
        at += 1
    return False


@inner
def add_user_property(data: Any, user_end: int, at: int, end: int) -> int:
    """Add an entry of the map to the properties that end at ``user_end``; return the new end, or -1."""
    no = i64(-1)
    number, kind, name_size, name = read_head(data, at, end)
    if name < 0 or number != 1 or kind != DELIMITED:
        return no
    number, kind, value_size, value = read_head(data, name + name_size, end)
    if value < 0 or number != 2 or kind != DELIMITED or value + value_size != end:
        return no
    if (
        name_size == 0
        or value_size == 0
        or user_end + name_size + value_size + 2 > USER_AT + TEXTS_MAX
        or not is_plain_text(data, name, name + name_size, i64(0))
        or not is_printable(data, value, end)
        or is_reserved(data, name, name_size)
        or has_user_property(data, user_end, name, name_size)
    ):
        return no
    return write_pair(data, user_end, data, name, name + name_size, data, value, end)
