"""The message groups of an orderly group's rows: a hash table and chains, in columns of the rows themselves.

Every row names the next one of its message group (NEXT_IN_GROUP: index + 1, 0 for none). A table of
twice as many slots as there are rows, two in each row's SLOTS columns, has for each message group the
last row that was added of it and how many of its rows live::

    slot    number of live rows << 32 | index of the last row + 1, 0 if it was never used

A row takes at most one slot, and rows are moved together before the last one is used, so half of the
slots are free. Whoever moves rows, or takes away the last ones, links them again.
"""

from __future__ import annotations

from typing import Any, Final

from storage.kernels.leases.columns import (
    GONE,
    HEAD,
    MESSAGE_GROUP,
    NEVER,
    NEXT_IN_GROUP,
    SLOTS,
    STATE,
    STATE_BITS,
    TAIL,
)
from storage.kernels.primitives.jit import i64, inner

_LIVE_BITS: Final = 32
_INDEX_MASK: Final = (1 << _LIVE_BITS) - 1


@inner
def slot_of(rows: Any, message_group: int) -> int:
    """The slot of a message group, or the free one that it would get; -1 if there is none."""
    count = 2 * rows.shape[0]
    slot = (message_group & NEVER) % count
    for _ in range(count):
        value = rows[slot >> 1, SLOTS + (slot & 1)]
        if value == 0 or rows[(value & _INDEX_MASK) - 1, MESSAGE_GROUP] == message_group:
            return i64(slot)
        slot += 1
        if slot == count:
            slot = i64(0)
    return i64(-1)


@inner
def has_live(rows: Any, message_group: int) -> bool:
    """Whether a live row has the message group."""
    slot = slot_of(rows, message_group)
    return slot >= 0 and rows[slot >> 1, SLOTS + (slot & 1)] >> _LIVE_BITS > 0


@inner
def link_row(rows: Any, index: int) -> None:
    """Take in a live row that comes after all others of its message group."""
    rows[index, NEXT_IN_GROUP] = 0
    slot = slot_of(rows, rows[index, MESSAGE_GROUP])
    if slot < 0:
        return
    value = rows[slot >> 1, SLOTS + (slot & 1)]
    if value:
        rows[(value & _INDEX_MASK) - 1, NEXT_IN_GROUP] = index + 1
    live = (value >> _LIVE_BITS) + 1
    rows[slot >> 1, SLOTS + (slot & 1)] = (live << _LIVE_BITS) | (index + 1)


@inner
def unlink_row(rows: Any, index: int) -> int:
    """Note that a row is GONE; return the index of the next live one of its message group, -1 if there is none."""
    slot = slot_of(rows, rows[index, MESSAGE_GROUP])
    if slot >= 0 and rows[slot >> 1, SLOTS + (slot & 1)] >> _LIVE_BITS > 0:
        rows[slot >> 1, SLOTS + (slot & 1)] -= 1 << _LIVE_BITS
    following = rows[index, NEXT_IN_GROUP]
    while following and (rows[following - 1, STATE] >> STATE_BITS) & 0xFF == GONE:
        following = rows[following - 1, NEXT_IN_GROUP]
    return i64(following - 1)


@inner
def free_slots(rows: Any, end: int) -> None:
    """Make all slots free where none of the rows up to ``end`` lives, and no others have slots.

    A slot that is used lies in a run of used ones from where its message group belongs.
    """
    count = 2 * rows.shape[0]
    for index in range(end):
        slot = (rows[index, MESSAGE_GROUP] & NEVER) % count
        while rows[slot >> 1, SLOTS + (slot & 1)]:
            rows[slot >> 1, SLOTS + (slot & 1)] = 0
            slot += 1
            if slot == count:
                slot = i64(0)


@inner
def free_all_slots(rows: Any) -> None:
    """Make all slots free."""
    for index in range(rows.shape[0]):
        rows[index, SLOTS] = 0
        rows[index, SLOTS + 1] = 0


@inner
def link_all(rows: Any, bounds: Any) -> None:
    """Link all live rows again."""
    free_all_slots(rows)
    for index in range(bounds[HEAD], bounds[TAIL]):
        if (rows[index, STATE] >> STATE_BITS) & 0xFF != GONE:
            link_row(rows, i64(index))
