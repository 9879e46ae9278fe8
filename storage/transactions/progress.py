"""How far transactions are, as a start needs it: in the writer's journal, and a broker's own entry.

``half_offset`` is a queue offset of the half queue before which all halves are ended;
``removal_offset`` one of the queue of op records, before which each names halves before ``half_offset``:
it was stored before the half there. ``copies_offset`` is a commit offset before which no half that is
pending has a copy. All only save reading: without them a start reads all of both queues, and looks for
copies since the oldest pending half. A broker keeps the first two as offsets of its group
CID_RMQ_SYS_TRANS. They count where a broker ran since our last writer: whoever else wrote there knows
nothing of halves.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.engine.system_group import SystemGroup
from storage.errors import StoreFull
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC, TRANSACTION_GROUP

if TYPE_CHECKING:
    import threading

    from storage.transactions.halves import DecidedEnds, HalfTable
    from storage.transactions.log_access import TransactionLog

STATE: Final = "transactions"  # in the writer's journal


class TransactionProgress(NamedTuple):
    """Offsets up to which halves, op records and copies need not be read again."""

    half_offset: int
    removal_offset: int
    copies_offset: int


NO_PROGRESS: Final = TransactionProgress(0, 0, 0)


def load_progress(
    document: dict[str, Any] | None, group: SystemGroup, *, broker_ran: bool
) -> TransactionProgress:
    """Return our progress, or that of a broker that ran since, if it is further on: each holds on its own.

    Whoever else ran may have left copies without op records.
    """
    own = TransactionProgress(**document) if document else NO_PROGRESS
    if not broker_ran:
        return own
    topics = group.offsets()
    found = TransactionProgress(
        topics.get(HALF_TOPIC, {}).get(0, 0), topics.get(HALF_REMOVAL_TOPIC, {}).get(0, 0), 0
    )
    return max(own, found)._replace(copies_offset=0)


class KeptProgress:
    """The progress of one store. Methods are safe to call from several threads."""

    def __init__(
        self, log: TransactionLog, table: HalfTable, decided: DecidedEnds, guard: threading.RLock
    ) -> None:
        """``guard`` is the lock of both tables."""
        self._log = log
        engine = log.engine
        self._states = engine.states
        self._group = SystemGroup(
            engine.filesystem, engine.paths.config, log.clock, TRANSACTION_GROUP
        )
        self._table = table
        self._decided = decided
        self._guard = guard
        self._copies_offset = 0
        self._saved: TransactionProgress | None = None
        self._noted: tuple[TransactionProgress, int] | None = None  # and the end to be flushed

    def load(self) -> TransactionProgress:
        """Return what was kept."""
        return load_progress(
            self._states.document(STATE), self._group, broker_ran=self._log.engine.broker_ran
        )

    def start(self, loaded: TransactionProgress, kept: TransactionProgress) -> None:
        """Go on from where a start has read. Raises StoreFull, OSError."""
        if loaded != kept:
            self._put(loaded)  # or what is stored next would not be read again
        elif self._log.engine.broker_ran and loaded != NO_PROGRESS:
            with suppress(StoreFull, OSError):  # then ``save`` tries it again
                self._put(loaded)
        with self._guard:
            self._copies_offset = loaded.copies_offset

    def now(self) -> TransactionProgress:
        """Return from where on a start has to read half queue and op records."""
        with self._guard:
            queue, removal_queue = self._log.half_queue(), self._log.removal_queue()
            if queue is None:
                return NO_PROGRESS
            # Dispatch may be behind: what it has not seen is read again. Op records come after their halves.
            removal_offset = 0 if removal_queue is None else removal_queue.next_offset
            half_offset, first = queue.next_offset, self._table.first
            if first is not None:
                half_offset = first.queue_offset
                if removal_queue is not None:
                    removal_offset = removal_queue.find_first(first.commit_offset)
            decided = self._decided.first_commit_offset()
            if decided is not None:
                self._copies_offset = decided
            elif first is not None:  # later halves have later copies
                self._copies_offset = self._log.engine.log.appended_offset
            return TransactionProgress(half_offset, removal_offset, self._copies_offset)

    def note(self) -> None:
        """Have the progress as of now kept by the next ``save`` that finds flushed what it rests on."""
        with self._guard:
            progress = self.now()
            if progress != self._saved:
                self._noted = progress, self._log.engine.log.appended_offset

    def save(self) -> None:
        """Keep what was noted for the next start; durable on return. Raises StoreFull, OSError.

        Only what is flushed counts: a power cut may take the op records that it rests on.
        """
        with self._guard:
            noted = self._noted
            if noted is None or self._log.engine.log.flushed_offset < noted[1]:
                return
        self._put(noted[0])
        with self._guard:
            self._saved = noted[0]
            if self._noted is noted:
                self._noted = None

    def hand_over(self) -> None:
        """Keep the progress where a broker reads it, as far as nobody else keeps that table."""
        half_offset, removal_offset, _ = self.now()
        if half_offset or removal_offset:
            self._group.hand_over(
                {(HALF_TOPIC, 0): half_offset, (HALF_REMOVAL_TOPIC, 0): removal_offset}
            )

    def _put(self, progress: TransactionProgress) -> None:
        self._states.put_document(STATE, progress._asdict())
