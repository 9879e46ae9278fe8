"""Names of files, topics and groups.

Files of the commit log and of consume queues are named by the offset of their first byte, as 20
decimal digits; index files by the moment of their creation in UTC, as 17.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

INDEX_NAME_LENGTH: Final = 17
OFFSET_LIMIT: Final = 1 << 62  # a whole file more is a position still
TOPIC_SIZE_MAX: Final = 127
LONG_TOPIC_SIZE_MAX: Final = 255
GROUP_SIZE_MAX: Final = 120
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_REMOVAL_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
_LEGAL: Final = frozenset("%|-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def file_name(offset: int) -> str:
    """Name the file whose first byte has ``offset``."""
    return f"{offset:020d}"


def parse_file_name(name: str) -> int | None:
    """Return the offset in a file name, None if the name is not an offset.

    A broker takes any decimal integer of 64 bits; so does this, but for signs.
    """
    offset = int(name) if name.isascii() and name.isdigit() and len(name) < 99 else -1
    return offset if 0 <= offset < OFFSET_LIMIT else None


def without_intruders(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return which files, ``(start, size)`` in order of start, are one log's: their places.

    All files of a log have one length and begin at its multiples. One that begins elsewhere, inside
    another, is none of them, and would hide what stands there.
    """
    ends = [start + size for start, size in spans]
    if all(end <= start for end, (start, _) in zip(ends, spans[1:], strict=False)):
        return list(range(len(spans)))
    counts = Counter(size for _, size in spans if size)
    fitting = {size: sum(start % size == 0 for start, _ in spans) for size in counts}
    length = max(counts, key=lambda size: (fitting[size], counts[size], size), default=0)
    kept: list[int] = []
    for place, (start, _) in enumerate(spans):
        if not kept or start >= ends[kept[-1]] or (length and start % length == 0):
            kept.append(place)
    return kept


def index_file_name(timestamp_ms: int) -> str:
    """Name an index file created at ``timestamp_ms``: yyyyMMddHHmmssSSS in UTC."""
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def parse_index_file_name(name: str) -> int | None:
    """Return the number that sorts an index file among its like, None if it is no index file."""
    return int(name) if name.isascii() and name.isdigit() else None


def topic_name_problem(topic: str) -> str | None:
    """Say what keeps ``topic`` from being a topic's name, None if nothing does."""
    long_form = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return _problem(topic, "topic", LONG_TOPIC_SIZE_MAX if long_form else TOPIC_SIZE_MAX)


def group_name_problem(group: str) -> str | None:
    """Say what keeps ``group`` from being a consumer group's name, None if nothing does."""
    return _problem(group, "group", GROUP_SIZE_MAX)


def consumer_group_problem(group: str) -> str | None:
    """Say what keeps ``group`` from being a group that consumes; the offsets of a store's own say how far its work is."""
    if group.startswith(SYSTEM_GROUP_PREFIX):
        return f"the groups {SYSTEM_GROUP_PREFIX}... are the store's own"
    return group_name_problem(group)


def _problem(name: str, kind: str, size_max: int) -> str | None:
    if not name:
        return f"the {kind} is empty"
    for character in name:
        if character not in _LEGAL:
            return f"the {kind} contains {character!r}; use letters, digits, and any of % | - _"
    if len(name) > size_max:
        return f"the {kind} has {len(name)} characters; the most is {size_max}"
    return None
