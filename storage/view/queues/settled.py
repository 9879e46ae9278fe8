"""The newest unit of a queue whose writer runs, which may have been read while it was being written.

A unit is 20 bytes that are not stored at once: whoever reads the next one at that moment can see a size
whose offset is not there yet, which looks like a record at the log's begin. Units below the dispatched
offset are whole, so only the last one that seemed to be readable can be such.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from storage.format.consume_entry import PREFILL_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.format.record_layout import COMMIT_OFFSET_POSITION, QUEUE_OFFSET_POSITION

if TYPE_CHECKING:
    from storage.view.log.files import ListedLog
    from storage.view.queues.queue_files import QueueFiles
    from storage.view.queues.unit_search import Unit

TRIES: Final = 3
PAUSE_S: Final = 0.001
HEAD_SIZE: Final = COMMIT_OFFSET_POSITION + 8


def settled(log: ListedLog, topic: str, queue: QueueFiles, end_offset: int) -> QueueFiles:
    """Return the queue, without its last unit if that does not point to its record.

    A record whose head is damaged keeps its unit, which stays as it is and points after the one
    before. ``end_offset`` is the limit below which units count.
    """
    last = queue.end - 1
    if last < queue.begin:
        return queue
    unit = queue.unit(last)
    if unit[:2] == (0, PREFILL_SIZE) or _names_its_record(log, topic, last, unit, end_offset):
        return queue
    shorter = replace(queue, end=last)
    for _ in range(TRIES):
        time.sleep(PAUSE_S)
        again = queue.unit(last)
        if again != unit or not _is_below(again, end_offset):
            return shorter
    if last > queue.begin and unit[0] <= queue.unit(last - 1)[0]:
        return shorter
    return queue


def _is_below(unit: Unit, end_offset: int) -> bool:
    offset, size, _ = unit
    return size > 0 and 0 <= offset <= end_offset - size


def _names_its_record(
    log: ListedLog, topic: str, queue_offset: int, unit: Unit, end_offset: int
) -> bool:
    offset, size, _ = unit
    if not _is_below(unit, end_offset):
        return False
    head = log.read(offset, HEAD_SIZE)
    if len(head) < HEAD_SIZE:
        return False
    named = int.from_bytes(head[COMMIT_OFFSET_POSITION:HEAD_SIZE], "big", signed=True)
    place = int.from_bytes(
        head[QUEUE_OFFSET_POSITION : QUEUE_OFFSET_POSITION + 8], "big", signed=True
    )
    is_place = place == queue_offset or topic.startswith(LIGHT_QUEUE_PREFIX)
    return int.from_bytes(head[:4], "big", signed=True) == size and named == offset and is_place
