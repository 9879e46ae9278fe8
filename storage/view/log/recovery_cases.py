"""What recovery decides, as three tables.

*Where to start* is decided once, from what the directory shows (``DirectoryState``). *What a stop of the
scan means* is decided at each place where the log does not go on with an intact record (``Stopped``).
*Where the log goes on* is decided once, where the scan ended (``LogEnd``).
The rows of a table exclude each other and together cover every combination; a test enumerates them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

Y: Final = True
N: Final = False
ANY: Final = None
Pattern = tuple[bool | None, ...]


class DirectoryState(NamedTuple):
    """What the directory shows before recovery."""

    log: bool  # commitlog/ holds a file
    queues: bool  # consumequeue/ holds a file
    slot: bool  # the checkpoint has a whole durable slot, and it is trusted: no broker ran since
    inside: bool  # the slot's offsets lie within the log's files, the last in one that is there
    agree: bool  # the queues' files hold as many units as the slot says
    clean: bool  # the slot says that the last stop was orderly, and there is no abort file


class Start(Enum):
    """How much has to be looked at."""

    NEW = "an empty store: nothing to look at"
    REFUSE = "queues without a log: the log is lost or not mounted; touch nothing"
    CLEAN = "the last stop was orderly: the slot's offset is the end"
    BOUNDED = "scan from the slot's dispatched offset; queues are right up to there"
    FULL = "scan the whole log and compare every queue with it"


START_CASES: Final[tuple[tuple[Pattern, Start], ...]] = (
    # log queues slot inside agree clean
    ((N, N, ANY, ANY, ANY, ANY), Start.NEW),  # a fresh directory, or one whose files were removed
    ((N, Y, ANY, ANY, ANY, ANY), Start.REFUSE),  # a lost mount; a broker would delete the queues
    ((Y, ANY, Y, Y, Y, Y), Start.CLEAN),  # we closed it
    (
        (Y, ANY, Y, Y, Y, N),
        Start.BOUNDED,
    ),  # we were killed, the machine went down, or the slot is old
    ((Y, ANY, Y, Y, N, ANY), Start.FULL),  # a queue, or a file of one, is gone, short or zeroed
    ((Y, ANY, Y, N, ANY, ANY), Start.FULL),  # files were removed or put back behind our back
    ((Y, ANY, N, ANY, ANY, ANY), Start.FULL),  # a broker's, an old one, or a damaged checkpoint
)


class Stopped(NamedTuple):
    """What is known where the scan found no intact record to go on with."""

    blank: bool  # it stands on a blank record: the file says that it ends here
    intact_follows: bool  # an intact record was found behind, in this file or a later one
    adjacent: bool  # ... exactly at the start of the next file
    unwritten: (
        bool  # a sector before it was never written, and nothing after that was promised to anybody
    )


class StopDecision(Enum):
    """What becomes of the place."""

    NEXT_FILE = "the log goes on in the next file"
    STEP_OVER = "damage: keep what follows, give the damaged range up"
    CUT = "the end of the log: what lies behind is overwritten"


SCAN_CASES: Final[tuple[tuple[Pattern, StopDecision], ...]] = (
    # blank intact_follows adjacent unwritten
    ((Y, Y, Y, ANY), StopDecision.NEXT_FILE),  # an ordinary roll
    ((Y, Y, N, N), StopDecision.STEP_OVER),  # the next file is lost, or begins with damage
    (
        (Y, N, ANY, ANY),
        StopDecision.CUT,
    ),  # killed between the blank and the next file's first record
    ((N, Y, ANY, N), StopDecision.STEP_OVER),  # a flipped bit, a lost page, a lost file
    ((N, N, ANY, ANY), StopDecision.CUT),  # a torn last record, or simply where writing stopped
    (
        (Y, Y, N, Y),
        StopDecision.CUT,
    ),  # a power cut in sync mode left what came later of one write-back
    ((N, Y, ANY, Y), StopDecision.CUT),  # the same, within a file
)


class LogEnd(NamedTuple):
    """What is known where the scan ended."""

    file_there: (
        bool  # the file is there in which the log would go on, or that of the last bytes below
    )
    durable: bool  # our checkpoint says that a sync had returned for more
    stated: bool  # our checkpoint says that the log had been written further
    queued: bool  # a unit of a queue points further


class EndDecision(Enum):
    """Where the next record goes."""

    HERE = "where the scan ended: nothing was lost, or nothing that was known to be durable"
    AFTER = "after what is damaged: it was durable, and keeps its queue offsets"
    ABOVE = "after what is lost with its files, a damaged range: queue offsets go on above, too"


END_CASES: Final[tuple[tuple[Pattern, EndDecision], ...]] = (
    # file_there durable stated queued
    (
        (Y, N, ANY, ANY),
        EndDecision.HERE,
    ),  # a power cut took the tail, which units may have outlived
    ((Y, Y, ANY, ANY), EndDecision.AFTER),  # a flipped bit in the last record, a page that is zeros
    ((N, N, N, N), EndDecision.HERE),  # a broker's file is full, and the next one was never made
    ((N, Y, ANY, ANY), EndDecision.ABOVE),  # the last files were removed
    (
        (N, N, Y, ANY),
        EndDecision.ABOVE,
    ),  # the same, before a sync: they are made before they are written to
    (
        (N, N, N, Y),
        EndDecision.ABOVE,
    ),  # the same, and the checkpoint is lost, or older than those files
)


def _matches(pattern: Pattern, facts: tuple[bool, ...]) -> bool:
    return all(want is None or want == fact for want, fact in zip(pattern, facts, strict=True))


def decide_start(found: DirectoryState) -> Start:
    """Return the one start that the facts allow."""
    return next(start for pattern, start in START_CASES if _matches(pattern, found))


def decide_stop(stopped: Stopped) -> StopDecision:
    """Return the one decision that the facts allow."""
    return next(decision for pattern, decision in SCAN_CASES if _matches(pattern, stopped))


def decide_end(found: LogEnd) -> EndDecision:
    """Return the one decision that the facts allow."""
    return next(decision for pattern, decision in END_CASES if _matches(pattern, found))
