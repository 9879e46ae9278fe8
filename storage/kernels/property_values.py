"""Values of named properties of many records, as columns: where they are, what they equal, their numbers."""

from __future__ import annotations

from typing import Any, Final

from numba import types

from storage.format.record_layout import RECORD_SIZE_MIN
from storage.kernels.columns import PROPERTIES_LENGTH, PROPERTIES_POSITION, STOP_END
from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.crc import bytes_equal
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    WRITABLE_INT64S,
    i64,
    inner,
    int64,
    kernel,
)
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.properties import property_value
from storage.kernels.scan import frame_record

WRITABLE_FLOAT64S: Final = types.Array(types.float64, 1, "C")

EQUAL: Final = 0
CONTAINS: Final = 1
STARTS_WITH: Final = 2
ENDS_WITH: Final = 3

ABSENT: Final = 0
READ: Final = 1
NO_NUMBER: Final = 2
INEXACT: Final = 3  # a number that needs more digits than this kernel keeps

_PLUS: Final = ord("+")
_MINUS: Final = ord("-")
_POINT: Final = ord(".")
_ZERO: Final = ord("0")
_NINE: Final = ord("9")
_SPACE: Final = ord(" ")
_EXPONENT: Final = ord("e")
_LOWER: Final = 0x20  # sets a letter's case
_TYPE_SUFFIXES: Final = (ord("d"), ord("f"))  # Java's, of a double and of a float
_INTEGER_DIGITS_MAX: Final = 19
_EXACT_MANTISSA_MAX: Final = 1 << 53
_EXACT_POWER_MAX: Final = 22
_EXPONENT_MAX: Final = 9999


@kernel(int64(BYTES, INT64S, BYTES, INT64S, WRITABLE_INT64S, WRITABLE_INT64S))
def find_properties(
    data: Any, positions: Any, names: Any, name_ends: Any, starts: Any, lengths: Any
) -> int:
    """Find the values of the named properties of the records at ``positions``.

    Names stand end to end in ``names``. ``starts`` and ``lengths`` have all records for the first name,
    then all for the next; a start of -1 says that the record has no such property. Returns 0, or -1 if
    an array is too small or no record is at a position.
    """
    count = positions.size
    if starts.size < count * name_ends.size or lengths.size < count * name_ends.size:
        return i64(-1)
    row = scratch_row()
    for i in range(count):
        position = positions[i]
        if position < 0 or position > data.size - RECORD_SIZE_MIN:
            return i64(-1)
        if frame_record(data, position, data.size, 0, row, 0) != STOP_END:
            return i64(-1)
        begin = i64(0)
        for j in range(name_ends.size):
            start, length = property_value(
                data,
                row[0, PROPERTIES_POSITION],
                row[0, PROPERTIES_LENGTH],
                names[begin : name_ends[j]],
            )
            starts[j * count + i] = start
            lengths[j * count + i] = length
            begin = name_ends[j]
    return i64(0)


@inner
def _text_is_found(
    data: Any, start: int, length: int, texts: Any, begin: int, size: int, how: int
) -> bool:
    """Whether a value equals, contains, starts with or ends with a text."""
    if size > length or (how == EQUAL and size != length):
        return False
    if how == ENDS_WITH:
        return bytes_equal(data, start + length - size, texts, begin, size)
    if how != CONTAINS:
        return bytes_equal(data, start, texts, begin, size)
    for at in range(start, start + length - size + 1):
        if bytes_equal(data, at, texts, begin, size):
            return True
    return False


@kernel(int64(BYTES, INT64S, INT64S, BYTES, INT64S, int64, WRITABLE_INT64S))
def match_texts(
    data: Any, starts: Any, lengths: Any, texts: Any, text_ends: Any, how: int, found: Any
) -> int:
    """Set ``found`` to 1 for each value that one of the texts is found in, to 0 for the others.

    Returns 0, or -1 if an array is too small or a value lies outside of the data.
    """
    if lengths.size < starts.size or found.size < starts.size:
        return i64(-1)
    for i in range(starts.size):
        found[i] = 0
        if starts[i] < 0:
            continue
        if lengths[i] < 0 or lengths[i] > data.size - starts[i]:
            return i64(-1)
        begin = i64(0)
        for j in range(text_ends.size):
            size = text_ends[j] - begin
            if _text_is_found(data, starts[i], lengths[i], texts, begin, size, how):
                found[i] = 1
                break
            begin = text_ends[j]
    return i64(0)


@kernel(int64(BYTES, INT64S, INT64S, INT64S, INT64S, WRITABLE_INT64S))
def match_values(
    data: Any, starts: Any, lengths: Any, other_starts: Any, other_lengths: Any, found: Any
) -> int:
    """Set ``found`` to 1 where both values are there and equal. Returns 0, -1 as :func:`match_texts`."""
    count = starts.size
    if min(lengths.size, other_starts.size, other_lengths.size, found.size) < count:
        return i64(-1)
    for i in range(count):
        found[i] = 0
        length = lengths[i]
        if starts[i] < 0 or other_starts[i] < 0 or length != other_lengths[i]:
            continue
        if length < 0 or length > data.size - max(starts[i], other_starts[i]):
            return i64(-1)
        if bytes_equal(data, starts[i], data, other_starts[i], length):
            found[i] = 1
    return i64(0)


@kernel(int64(BYTES, INT64S, INT64S, WRITABLE_INT64S, WRITABLE_INT64S))
def read_integers(data: Any, starts: Any, lengths: Any, numbers: Any, states: Any) -> int:
    """Read values as 64-bit integers; ``states`` has ABSENT, READ or NO_NUMBER for each.

    An integer is a sign or none, and digits, as Java reads a long. Returns as :func:`match_texts`.
    """
    if min(lengths.size, numbers.size, states.size) < starts.size:
        return i64(-1)
    for i in range(starts.size):
        numbers[i] = 0
        states[i] = ABSENT
        if starts[i] < 0:
            continue
        if lengths[i] < 0 or lengths[i] > data.size - starts[i]:
            return i64(-1)
        states[i] = NO_NUMBER
        at = starts[i]
        end = at + lengths[i]
        is_negative = False
        if at < end:
            is_negative = read_u8(data, at) == _MINUS
            if is_negative or read_u8(data, at) == _PLUS:
                at += 1
        while at < end - 1 and read_u8(data, at) == _ZERO:
            at += 1
        if at == end or end - at > _INTEGER_DIGITS_MAX:
            continue
        negated = i64(0)  # the least integer has no positive twin
        is_integer = True
        for position in range(at, end):
            digit = read_u8(data, position) - _ZERO
            if digit < 0 or digit > 9:
                is_integer = False
                break
            wrapped = i64(negated * 10 - digit)
            if wrapped > negated:
                is_integer = False
                break
            negated = wrapped
        if not is_integer or (not is_negative and negated == -negated and negated != 0):
            continue
        numbers[i] = negated if is_negative else -negated
        states[i] = READ
    return i64(0)


@kernel(int64(BYTES, INT64S, INT64S, WRITABLE_FLOAT64S, WRITABLE_INT64S))
def read_decimals(data: Any, starts: Any, lengths: Any, numbers: Any, states: Any) -> int:
    """Read values as doubles; ``states`` has ABSENT, READ, NO_NUMBER or INEXACT for each.

    What Java reads as a double counts as a number but for names and hexadecimal digits. A number is READ
    if its digits and its power of ten are exact doubles, so that one rounding gives the nearest double
    (Clinger 1990); others are INEXACT and left to the caller. Returns as :func:`match_texts`.
    """
    if min(lengths.size, numbers.size, states.size) < starts.size:
        return i64(-1)
    for i in range(starts.size):
        numbers[i] = 0.0
        states[i] = ABSENT
        if starts[i] < 0:
            continue
        if lengths[i] < 0 or lengths[i] > data.size - starts[i]:
            return i64(-1)
        at = starts[i]
        end = at + lengths[i]
        while at < end and read_u8(data, at) <= _SPACE:
            at += 1
        while at < end and read_u8(data, end - 1) <= _SPACE:
            end -= 1
        if at < end and (read_u8(data, end - 1) | _LOWER) in _TYPE_SUFFIXES:
            end -= 1
        is_negative = at < end and read_u8(data, at) == _MINUS
        if at < end and (is_negative or read_u8(data, at) == _PLUS):
            at += 1
        mantissa = i64(0)
        power = i64(0)
        digits = i64(0)
        is_exact = True
        after_point = False
        while at < end:
            byte = read_u8(data, at)
            if byte == _POINT and not after_point:
                after_point = True
            elif _ZERO <= byte <= _NINE:
                digits += 1
                if mantissa < _EXACT_MANTISSA_MAX:
                    mantissa = mantissa * 10 + (byte - _ZERO)
                    power -= after_point
                else:
                    is_exact = False
            else:
                break
            at += 1
        is_number = digits > 0
        if is_number and at < end and (read_u8(data, at) | _LOWER) == _EXPONENT:
            at += 1
            exponent = i64(0)
            exponent_digits = i64(0)
            down = at < end and read_u8(data, at) == _MINUS
            if at < end and (down or read_u8(data, at) == _PLUS):
                at += 1
            while at < end and _ZERO <= read_u8(data, at) <= _NINE:
                exponent = min(exponent * 10 + (read_u8(data, at) - _ZERO), i64(_EXPONENT_MAX))
                exponent_digits += 1
                at += 1
            is_number = exponent_digits > 0
            power += -exponent if down else exponent
        if not is_number or at < end:
            states[i] = NO_NUMBER
            continue
        if not is_exact or mantissa > _EXACT_MANTISSA_MAX or abs(power) > _EXACT_POWER_MAX:
            states[i] = READ if mantissa == 0 and is_exact else INEXACT
            continue
        scale = 1.0
        for _ in range(abs(power)):
            scale *= 10.0
        number = mantissa / scale if power < 0 else mantissa * scale
        numbers[i] = -number if is_negative else number
        states[i] = READ
    return i64(0)
