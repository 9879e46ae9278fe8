"""Delays of rows, as the properties by which an encoded record asks for them."""

from __future__ import annotations

from typing import Any, Final

from storage.kernels.primitives.jit import i64, inner, uintp
from storage.kernels.properties import NAME_DELAY_MS, NAME_DELIVER_MS
from storage.kernels.timers.decimals import DIGITS_MAX, decimal_size, write_decimal_property

NO_PROBLEM: Final = 0
BAD_DELAY: Final = 15  # after those of ``storage.kernels.encode``
BAD_DELIVERY_TIME: Final = 16
TWO_DELAYS: Final = 17
DELAY_MAX: Final = 10**DIGITS_MAX - 1


@inner
def delay_of(delays: Any, delivery_times: Any, row: int) -> tuple[int, int, int]:
    """``(delay, time of delivery, problem)`` of a row, both in milliseconds; 0: none, of one at least."""
    delay = i64(delays[uintp(row)] if delays.size > 0 else 0)
    delivery_time = i64(delivery_times[uintp(row)] if delivery_times.size > 0 else 0)
    problem = i64(NO_PROBLEM)
    if delay < 0 or delay > DELAY_MAX:
        problem = i64(BAD_DELAY)
    elif delivery_time < 0 or delivery_time > DELAY_MAX:
        problem = i64(BAD_DELIVERY_TIME)
    elif delay > 0 and delivery_time > 0:
        problem = i64(TWO_DELAYS)
    return delay, delivery_time, problem


@inner
def delay_size(delay: int, delivery_time: int) -> int:
    """Return how many bytes a row's delay takes as a property."""
    if delay > 0:
        return i64(NAME_DELAY_MS.size + decimal_size(delay) + 2)
    if delivery_time > 0:
        return i64(NAME_DELIVER_MS.size + decimal_size(delivery_time) + 2)
    return i64(0)


@inner
def write_delay(dst: Any, at: int, delay: int, delivery_time: int) -> int:
    """Write a row's delay, if it has one; return the position after it."""
    if delay > 0:
        return write_decimal_property(dst, at, NAME_DELAY_MS, delay)
    if delivery_time > 0:
        return write_decimal_property(dst, at, NAME_DELIVER_MS, delivery_time)
    return i64(at)
