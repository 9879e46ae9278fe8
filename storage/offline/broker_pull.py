"""A broker's pull: its defaults, its minimum of a queue, and where it goes on after a missing file.

Limits are 16,000 bytes of units examined, 256 KiB and 32 records of what is in memory. A store larger
than 40 % of the memory has lower limits for its older records; that is left out. Tags are compared by
their hashes, and the client compares the texts.
"""

from __future__ import annotations

from typing import Final

from storage.format.consume_entry import UNIT_SIZE
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.pull import PullPolicy, next_file


def min_offset_of(queue: ConsumeQueueView, min_commit_offset: int, max_offset: int) -> int:
    """Return what a broker that has just started takes for the minimum.

    ConsumeQueue#correctMinOffset looks for the first live unit in the first file alone, so the
    minimum is 0 when that file is wholly expired and not the last.
    """
    last = queue.unit(max_offset - 1)
    if last is None:
        return 0
    if last.commit_offset < min_commit_offset:
        return max_offset
    for file in queue.files[:1]:
        first = file.start_offset // UNIT_SIZE
        for queue_offset in range(first, min(first + file.size // UNIT_SIZE, max_offset)):
            unit = queue.unit(queue_offset)
            if unit is None:
                return 0
            if unit.commit_offset >= min_commit_offset:
                return queue_offset
    return 0


def _next_whole_file(queue: ConsumeQueueView, queue_offset: int, max_offset: int) -> int:
    """Return where the file after a missing one would start, whether it is there or not."""
    units = queue.file_unit_count
    if not units:
        return next_file(queue, queue_offset, max_offset)
    return queue_offset - queue_offset % units + units


POLICY: Final = PullPolicy(
    examined_max=800,
    one_file=True,
    exact_tags=False,
    bytes_max=262_144,
    bytes_max_floor=100,
    records_max=32,
    skips_lost_files=True,
    min_offset=min_offset_of,
    after_hole=_next_whole_file,
)
