"""The last files of the log, removed while nobody ran on the store: what is known of them.

Our writer makes each file, durably, before anything is written to it. Where the checkpoint or a queue's unit
points into a file that is not there, after all others that hold anything, that file was removed.
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
    stated_offset: int,
    queued_offset: Callable[[], int],
) -> DamagedRange | None:
    """Return what is lost after the end that a walk has found, None if nothing is known to be.

    It ends where a file begins, in which the log goes on. ``stated_offset`` is how far the log had been
    written by our checkpoint, ``queued_offset`` returns where the last record ends that has a unit.
    """
    begin_offset = end.commit_offset
    if end.at_blank:
        file = files.find(begin_offset)
        begin_offset = begin_offset if file is None else file.end_offset
    if files.find(begin_offset) is not None:
        return None
    newest_offset = queued_offset()
    if newest_offset > begin_offset + LOST_FILES_MAX * file_size:
        newest_offset = 0
    known_offset = max(stated_offset, newest_offset)
    found = LogEnd(
        file_there=known_offset > 0 and files.find(known_offset - 1) is not None,
        stated=stated_offset > begin_offset,
        queued=known_offset > max(begin_offset, stated_offset),
    )
    if decide_end(found) is EndDecision.HERE:
        return None
    count = -(-(known_offset - begin_offset) // file_size)
    following = files.next_start(known_offset - 1)
    end_offset = begin_offset + count * file_size
    return DamagedRange(
        begin_offset,
        end_offset if following is None else following,
        "the last files of the log are gone",
    )
