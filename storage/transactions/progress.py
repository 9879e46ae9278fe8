"""How far transactions are, as a start needs it: in the writer's journal, and a broker's own entry.

``half_offset`` is a queue offset of the half queue before which all halves are ended;
``removal_offset`` one of the queue of op records, before which none names a half at or after
``half_offset``. ``copies_offset`` is a commit offset before which no half that is pending has a copy. All
only save reading: without them a start reads all of both queues, and looks for copies since the oldest
pending half. A broker keeps the first two as offsets of its group CID_RMQ_SYS_TRANS. They count where a
broker ran since our last writer: whoever else wrote there knows nothing of halves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC

if TYPE_CHECKING:
    from storage.engine.system_group import SystemGroup
    from storage.journal.states import StateJournal

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


def save_progress(states: StateJournal, progress: TransactionProgress) -> None:
    """Keep the progress; durable on return. Raises StoreFull with nothing changed, OSError."""
    states.put_document(STATE, progress._asdict())


def hand_over(group: SystemGroup, progress: TransactionProgress) -> None:
    """Write the progress where a broker reads it."""
    if progress.half_offset or progress.removal_offset:
        offsets = {
            (HALF_TOPIC, 0): progress.half_offset,
            (HALF_REMOVAL_TOPIC, 0): progress.removal_offset,
        }
        group.hand_over(offsets)
