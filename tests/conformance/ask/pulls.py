"""A broker's pull: its limits, its minimum of a queue, and where it goes on after a missing file.

It repeats DefaultMessageStore#getMessage unit by unit. Limits are 16,000 bytes of units examined in one file,
256 KiB and 32 records of what is in memory. A store larger than 40 % of the memory has lower limits for its
older records; that is left out. Tags are compared by their hashes, and the client compares the texts.
"""

from __future__ import annotations

from typing import Final

from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.format.extension_entry import is_address
from storage.kernels.columns import STOP_END
from storage.message import PullStatus
from storage.offline.extension import QueueExtension
from storage.offline.lines import Line
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.tag_filter import TagFilter

EXAMINED_MAX: Final = 800
BYTES_MAX: Final = 262_144
BYTES_MIN: Final = 100  # callers cannot ask for less
RECORDS_MAX: Final = 32
NO_LIMIT: Final = 1 << 62


def min_offset_of(queue: ConsumeQueueView, min_commit_offset: int, max_offset: int) -> int:
    """Return what a broker that has just started takes for the minimum.

    ConsumeQueue#correctMinOffset looks for the first live unit in the first file alone, so the
    minimum is 0 when that file is wholly expired and not the last.
    """
    last = queue.unit(max_offset - 1)
    if not last.size:
        return 0
    if last.commit_offset < min_commit_offset:
        return max_offset
    for file in queue.files[:1]:
        first = file.start_offset // UNIT_SIZE
        for queue_offset in range(first, min(first + file.size // UNIT_SIZE, max_offset)):
            if queue.unit(queue_offset).commit_offset >= min_commit_offset:
                return queue_offset
    return 0


def pull_as_broker(
    log: CommitLogView,
    queue: ConsumeQueueView,
    extension: QueueExtension,
    *,
    queue_offset: int,
    max_messages: int,
    max_bytes: int,
    tag_filter: TagFilter,
) -> Line:
    """Return a broker's answer; damaged records count for the limits and are not in it."""
    max_offset = queue.max_offset(log.visible_offset)
    min_offset = min_offset_of(queue, log.min_offset, max_offset)

    def answer(status: PullStatus, next_offset: int, found: dict[int, int] | None = None) -> Line:
        return {
            "status": status.name,
            "nextBeginOffset": next_offset,
            "minOffset": min_offset,
            "maxOffset": max_offset,
            "bytes": sum((found or {}).values()),
            "queueOffsets": list(found or {}),
        }

    if max_offset == 0:
        return answer(PullStatus.NO_MESSAGE_IN_QUEUE, 0)
    if queue_offset < min_offset:
        return answer(PullStatus.OFFSET_TOO_SMALL, min_offset)
    if queue_offset == max_offset:
        return answer(PullStatus.OFFSET_OVERFLOW_ONE, queue_offset)
    if queue_offset > max_offset:
        return answer(PullStatus.OFFSET_OVERFLOW_BADLY, max_offset)
    if queue.span(queue_offset, max_offset) is None:
        following = _next_file_offset(queue, queue_offset)
        next_offset = max_offset if following is None else min(following, max_offset)
        return answer(PullStatus.OFFSET_FOUND_NULL, next_offset)
    examined_max = max(EXAMINED_MAX, max_messages)
    max_messages = min(max(max_messages, 1), RECORDS_MAX)
    max_bytes = min(max(max_bytes, BYTES_MIN), BYTES_MAX)
    end = min(max_offset, _file_end(queue, queue_offset), queue_offset + examined_max)
    codes = {each & 0xFFFFFFFF for each in tag_filter.codes.tolist()}
    found: dict[int, int] = {}  # sizes of what is served
    met = met_bytes = resume_offset = 0
    status, at = PullStatus.NO_MATCHED_MESSAGE, queue_offset
    while at < end:
        unit = queue.unit(at)
        if met and (met >= max_messages or met_bytes + max(unit.size, 1) > max_bytes):
            break
        at += 1
        if unit.commit_offset < resume_offset:
            continue
        resume_offset = 0
        code = extension.tag_code(unit)
        is_known = not tag_filter.matches_all and not is_address(code)
        if is_known and code & 0xFFFFFFFF not in codes:
            status = status if met else PullStatus.NO_MATCHED_MESSAGE
            continue
        if log.find(unit.commit_offset) is None or unit.size == PREFILL_SIZE:
            status = status if met else PullStatus.MESSAGE_WAS_REMOVING
            resume_offset = min(
                (start for start, *_ in log.entries if start > unit.commit_offset),
                default=unit.commit_offset,
            )
            continue
        met += 1
        status = PullStatus.FOUND
        record = log.bytes_at(unit.commit_offset, unit.size) if unit.size > 0 else None
        if record is not None:
            met_bytes += unit.size
            if log.check(unit.commit_offset) == (unit.size, STOP_END):
                found[at - 1] = unit.size
    return answer(status, at, found)


def _next_file_offset(queue: ConsumeQueueView, queue_offset: int) -> int | None:
    """Return where the file after a missing one would start, whether it is there or not."""
    units = queue.files[0].size // UNIT_SIZE if queue.files else 0
    return queue_offset - queue_offset % units + units if units else None


def _file_end(queue: ConsumeQueueView, queue_offset: int) -> int:
    """Return the queue offset after the file of units that ``queue_offset`` is in."""
    for file in queue.files:
        if 0 <= queue_offset * UNIT_SIZE - file.start_offset < file.size:
            return (file.start_offset + file.size) // UNIT_SIZE
    return NO_LIMIT
