"""The end of the log, damaged or removed while nobody ran on the store: what is known of it.

Our writer makes each file, durably, before anything is written to it. Where the checkpoint or a queue's unit
points into a file that is not there, after all others that hold anything, that file was removed. What the
checkpoint calls durable in a file that is there, and is no intact record, is damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from storage.view.log.recovery_cases import EndDecision, LogEnd, decide_end
from storage.view.log.walk import DamagedRange, End, LogFiles

LOST_FILES_MAX: Final = 1_024  # a unit that points further has a flipped bit


def find_lost_end(
    files: LogFiles,
    end: End,
    *,
    file_size: int,
    durable_offset: int,
    stated_offset: int,
    queued_offset: Callable[[], int],
) -> DamagedRange | None:
    """Return what is lost after the end that a walk has found, None if nothing is known to be.

    The log goes on where it ends: where a file begins, if files are lost. A sync had returned for what
    lies below ``durable_offset``; ``stated_offset`` is how far the log had been written by our checkpoint, and
    ``queued_offset`` returns where the last record ends that has a unit.
    """
    begin_offset = end.commit_offset
    here = files.find(begin_offset)
    if end.at_blank and here is not None:
        begin_offset = here.end_offset
        here = files.find(begin_offset)
    is_durable = durable_offset > begin_offset
    if here is not None and not is_durable:
        return None
    known_offset = durable_offset
    if here is None:
        newest_offset = queued_offset()
        if newest_offset > begin_offset + LOST_FILES_MAX * file_size:
            newest_offset = 0
        known_offset = max(stated_offset, durable_offset, newest_offset)
    found = LogEnd(
        file_there=known_offset > 0 and files.find(known_offset - 1) is not None,
        durable=is_durable,
        stated=stated_offset > begin_offset,
        queued=known_offset > max(begin_offset, stated_offset),
    )
    decision = decide_end(found)
    if decision is EndDecision.HERE:
        return None
    if decision is EndDecision.AFTER:
        return DamagedRange(begin_offset, durable_offset, "what was durable there is damaged")
    first_lost_offset = begin_offset if here is None else here.end_offset
    count = -(-(known_offset - first_lost_offset) // file_size)
    following = files.next_start(known_offset - 1)
    end_offset = first_lost_offset + count * file_size
    return DamagedRange(
        begin_offset,
        end_offset if following is None else following,
        "the last files of the log are gone",
    )
