"""One consume queue unit: a fixed-width pointer into the commit log.

    offset  size  type  field
    0       8     i64   commit_offset   absolute position of the record in the commit log
    8       4     i32   record_size     whole record, not the body
    12      8     i64   tag_code        hash of the tag, a delivery time, or an extension address
    20

Integers are big-endian. A unit is valid if its offset is not negative and its size is positive;
an all-zero unit is space that was never written. Queue offset n lies at 20 n in the queue's files.
A queue whose first record is not number 0 is filled up to it with units (0, 0x7FFFFFFF, 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from struct import Struct
from typing import Final

from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.format.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, java_hash

LAYOUT: Final = Struct(
    ">q"  # commit_offset
    "i"  # record_size
    "q"  # tag_code
)
UNIT_SIZE: Final = 20
SIZE_IN_UNIT: Final = 8
TAG_CODE_IN_UNIT: Final = 12
PREFILL_SIZE: Final = 0x7FFF_FFFF
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
DELAY_LEVELS_MS: Final = tuple(
    1000 * seconds
    for seconds in (
        1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
    )
)  # fmt: skip
"""Delay of level 1, 2, ... 18 with a broker's default configuration."""


PREFILL_UNIT: Final = LAYOUT.pack(0, PREFILL_SIZE, 0)


def tag_code(tag: str | None) -> int:
    """Return the tag code of a message's TAGS: its hash with sign, 0 where there is none."""
    return java_hash(tag) if tag else 0


def delay_tag_code(delay_level: int, store_timestamp_ms: int) -> int:
    """Return the tag code of a parked message: when it is due, in milliseconds.

    Levels above the highest count as the highest; ``delay_level`` is above 0.
    """
    return store_timestamp_ms + DELAY_LEVELS_MS[min(delay_level, len(DELAY_LEVELS_MS)) - 1]


def delay_level_of(delay: str | None) -> int:
    """Parse the DELAY property as a broker does: 0 for what is no positive number."""
    try:
        return max(0, int(delay or 0))
    except ValueError:
        return 0


def record_tag_code(topic: str, properties: dict[str, str], store_timestamp_ms: int) -> int:
    """Return the tag code of a record's unit, as dispatch computes it (extension off)."""
    if topic == SCHEDULE_TOPIC and (level := delay_level_of(properties.get("DELAY"))):
        return delay_tag_code(level, store_timestamp_ms)
    return tag_code(properties.get("TAGS"))


def light_queues(properties: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the light queues (``%LMQ%``) that a record is in besides its own, and its offset in each.

    Its unit stands there in queue 0. Names that are no directory's and offsets that are no numbers
    are passed over, and all of them if there are not as many of the one as of the other.
    """
    names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
    found: list[tuple[str, int]] = []
    if len(names) == len(offsets):
        for name, offset in zip(names, offsets, strict=True):
            if name.startswith(LIGHT_QUEUE_PREFIX) and "/" not in name:
                with suppress(ValueError):
                    found.append((name, int(offset)))
    return found
