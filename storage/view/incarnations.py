"""Which topic of a name is meant: one that was deleted and created again is another one.

A topic's incarnation is the commit offset at which the last topic of its name was deleted, 0 if none was.
Offsets of its queues begin again at 0, and records before that commit offset are in none of them.
Whoever remembers a queue offset remembers the incarnation with it: leases, progress of groups, checkpoints
of streams, exports. They may do so for longer than the log has records from before the deletion, so it stays
noted for good, also of a topic that is not there: made again, it would seem to be the first one. Only a
writer of ours notes deletions (``deletedTopics`` in ``penstock.json``): of a broker's store, incarnations are
not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Incarnations:
    """The incarnation of every topic of a store that has settings of ours.

    ``deleting_topic`` has its deletion decided and not done: its queues may still be there, and are
    those of no incarnation.
    """

    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    deleting_topic: str = ""

    def of(self, topic: str) -> int:
        """Return the incarnation of a topic."""
        return self.deleted_topics.get(topic, 0)
