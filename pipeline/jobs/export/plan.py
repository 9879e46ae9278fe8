"""What an export has to write: which offsets of which queues go into which file.

A file is of one topic and one day. Queues are in the order of time, so days are found by halving, and
the records of one day are ranges of queue offsets; neighbouring ranges share a file until it is large
enough. So nothing is shuffled, and there are as few files as can be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

import numpy as np

from pipeline.errors import DataLost, InvalidOption, unknown_topic
from pipeline.jobs.export.known_stores import ExportedStore, check_incarnations
from pipeline.jobs.export.manifest import Manifest, QueueOfStore, Ranges
from pipeline.source.pieces import Piece
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.view.queues.time_search import search
from storage.view.store_plan import PlannedRange, Queue, StorePlan

DAY_MS: Final = 86_400_000
FILE_BYTES: Final = 256 << 20
TASK_BYTES: Final = 256 << 20


class DayPart(NamedTuple):
    """Queue offsets ``[begin, end)`` of one queue, all of one day by the store's clock."""

    plan: StorePlan
    queue: Queue
    day: date
    begin: int
    end: int
    cost: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file: the pieces that it is made of. A clock that went back may make it two."""

    number: int
    topic: str
    day: date
    pieces: tuple[Piece, ...]

    @property
    def cost(self) -> int:
        """Bytes of log to read."""
        return sum(piece.cost for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to export; times are Unix milliseconds, of the store's clock."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    fail_on_data_loss: bool = True


def choose_queues(
    stores: Sequence[ExportedStore], choice: Choice
) -> Iterator[tuple[ExportedStore, Queue]]:
    """Yield the chosen queues; InvalidOption for a topic that no store has.

    Light queues hold records of other topics, so they are only chosen by name.
    """
    if choice.topics and choice.pattern is not None:
        raise InvalidOption("pattern", "'topic' is given, too; choose one")
    known = {topic for store in stores for topic in store.plan.topics}
    for topic in choice.topics:
        if topic not in known:
            raise InvalidOption("topic", unknown_topic("the stores", topic, known))
    try:
        pattern = re.compile(choice.pattern) if choice.pattern is not None else None
    except re.error as error:
        raise InvalidOption("pattern", f"not a regular expression: {error}") from error
    for store in stores:
        for _, queue in sorted(store.plan.queues.items()):
            if pattern is not None:
                chosen = pattern.fullmatch(queue.topic) is not None
            elif choice.topics:
                chosen = queue.topic in choice.topics
            else:
                chosen = not queue.topic.startswith(LIGHT_QUEUE_PREFIX)
            if chosen and queue.end > queue.begin:
                yield store, queue


def plan_export(
    stores: Sequence[ExportedStore], choice: Choice, manifest: Manifest, file_bytes: int
) -> tuple[list[FilePlan], Ranges]:
    """Return the files that are to be written and the ranges which they hold together."""
    chosen = [(store, queue, store.key(queue)) for store, queue in choose_queues(stores, choice)]
    check_incarnations(
        (key for _, _, key in chosen), manifest, fail_on_data_loss=choice.fail_on_data_loss
    )
    ranges: Ranges = {}
    parts: dict[tuple[str, date], list[DayPart]] = {}
    for store, queue, key in chosen:
        plan = store.plan
        for begin, end in _wanted(plan, queue, key, choice, manifest):
            ranges.setdefault(key, []).append((begin, end))
            for part in days_of(plan, queue, begin, end):
                parts.setdefault((queue.topic, part.day), []).append(part)
    files: list[FilePlan] = []
    for (topic, day), mine in sorted(parts.items(), key=lambda item: item[0]):
        for pieces in _into_files(mine, file_bytes):
            files.append(FilePlan(len(files), topic, day, tuple(pieces)))
    return files, ranges


def _wanted(
    plan: StorePlan, queue: Queue, key: QueueOfStore, choice: Choice, manifest: Manifest
) -> list[tuple[int, int]]:
    begin, end = queue.begin, queue.end
    exported = manifest.exported_end(key)
    if exported is not None and exported < begin and choice.fail_on_data_loss:
        raise DataLost(
            f"queue {queue.queue_id} of topic {queue.topic!r} in {plan.store}: offsets {exported}"
            f" to {begin} have been removed and were not exported; set fail_on_data_loss=False"
            " (--no-fail-on-data-loss) to go on without them"
        )
    if exported is not None and exported > end:
        raise InvalidOption(
            "store",
            f"queue {queue.queue_id} of topic {queue.topic!r} in {plan.store} ends at {end} and"
            f" was exported up to {exported}: the store is older than that, or its topic was made"
            " again; export to a new directory",
        )
    for time_ms, is_begin in ((choice.since_ms, True), (choice.until_ms, False)):
        if time_ms is not None:
            at = plan.offset_at_time(queue, time_ms)
            at = queue.end if at is None else at
            begin, end = (max(begin, at), end) if is_begin else (begin, min(end, at))
    return manifest.missing(key, begin, end) if begin < end else []


def days_of(plan: StorePlan, queue: Queue, begin: int, end: int) -> Iterator[DayPart]:
    """Cut a range of queue offsets at midnights in UTC.

    Where a clock went back a part holds records of other days, too; there are no more parts for it.
    """
    times = plan.times(queue)
    while begin < end:
        day = plan.timestamp(queue, begin) // DAY_MS
        after = search(begin + 1, end, (day + 1) * DAY_MS, times)
        cost = sum(int(sizes.sum()) for sizes in queue.sizes(begin, after))
        yield DayPart(plan, queue, day_of(day), begin, after, max(cost, 1))
        begin = after


def day_of(number: int) -> date:
    """Return the day with a number counted from 1970."""
    try:
        return datetime.fromtimestamp(number * 86_400, UTC).date()
    except (OverflowError, OSError, ValueError):
        return date(1970, 1, 1)  # a time that no calendar has: it stands in the rows


def _into_files(parts: Sequence[DayPart], file_bytes: int) -> Iterator[list[Piece]]:
    """Fill files one after the other; all but the last are about equally large."""
    total = sum(part.cost for part in parts)
    count = max(1, round(total / file_bytes))
    share = total / count
    current: list[Piece] = []
    done = 0.0
    files = 0
    for part in parts:
        begin, cost = part.begin, part.cost
        while begin < part.end:
            room = share * (files + 1) - done
            end = part.end
            if cost > room and files + 1 < count:
                end = min(part.end, begin + _records_in(part.queue, begin, part.end, room))
                taken = sum(int(sizes.sum()) for sizes in part.queue.sizes(begin, end))
            else:
                taken = cost
            current += part.plan.queue_pieces([PlannedRange(part.queue, begin, end)], TASK_BYTES)
            done += taken
            begin, cost = end, cost - taken
            if done >= share * (files + 1) - 1 and files + 1 < count:
                yield current
                current = []
                files += 1
    if current:
        yield current


def _records_in(queue: Queue, begin: int, end: int, room: float) -> int:
    """Return how many records from ``begin`` on it takes to fill ``room`` bytes, one at least."""
    count, done = 0, 0
    for sizes in queue.sizes(begin, end):
        sums = np.cumsum(sizes) + done
        if sums[-1] >= room:
            return count + int(np.searchsorted(sums, room)) + 1
        count, done = count + len(sizes), int(sums[-1])
    return max(1, count)
