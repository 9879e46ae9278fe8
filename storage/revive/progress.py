"""How far checkpoints are settled, as a start needs it: in the writer's journal, and a broker's own entry.

Both only save reading: the log itself has an acknowledgement for each message that was handed out again. A
broker keeps the last queue offset that it settled as offset of its group CID_RMQ_SYS_REVIVE_GROUP; ours are
the next ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.engine.system_group import SystemGroup
    from storage.journal.states import StateJournal

STATE: Final = "revive"  # in the writer's journal
ReviveProgress = dict[tuple[str, int], int]
"""The first queue offset that is not settled, by revive topic and queue id."""


def load_progress(states: StateJournal, group: SystemGroup, *, broker_ran: bool) -> ReviveProgress:
    """Return for each queue our progress, or that of a broker that ran since, if it is further on; each holds."""
    found = {(topic, queue_id): offset for topic, queue_id, offset in states.document(STATE) or ()}
    if broker_ran:
        for topic, offsets in group.offsets().items():
            for queue_id, settled_offset in offsets.items():
                queue = topic, queue_id
                found[queue] = max(found.get(queue, 0), settled_offset + 1)
    return found


def save_progress(states: StateJournal, progress: ReviveProgress) -> None:
    """Keep the progress; durable on return. Raises StoreFull with nothing changed, OSError."""
    states.put_document(STATE, [[*queue, offset] for queue, offset in sorted(progress.items())])


def hand_over(group: SystemGroup, progress: ReviveProgress) -> None:
    """Write the progress where a broker reads it."""
    group.hand_over({queue: offset - 1 for queue, offset in progress.items() if offset > 0})
