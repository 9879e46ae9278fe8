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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.tables.topics import QUEUE_COUNT_MAX


@dataclass(frozen=True, slots=True)
class Incarnations:
    """The incarnation of every topic of a store: which records of its log belong into queues.

    ``deleting_topic`` has its deletion decided and not done: its queues may still be there, and are
    those of no incarnation. Records of topics that are not among ``known`` count nowhere, if that is given;
    those in light queues do.
    """

    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    deleting_topic: str = ""
    known: frozenset[str] | None = None

    def of(self, topic: str) -> int:
        """Return the incarnation of a topic: from there on its records count."""
        return self.deleted_topics.get(topic, 0)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a record that names a queue counts: an id that no queue can have is a flipped bit's."""
        return 0 <= queue_id < QUEUE_COUNT_MAX and not self.is_forgotten(topic)

    def is_forgotten(self, topic: str) -> bool:
        """Whether no record of a topic counts."""
        return (
            self.known is not None
            and topic not in self.known
            and not topic.startswith(LIGHT_QUEUE_PREFIX)
        )


def topics_there_are(on_disk: Iterable[str], in_table: Iterable[str]) -> frozenset[str] | None:
    """Return the topics that have queues on disk or are in the table, None where one of them is lost.

    After an orderly stop a topic that is not among them was deleted by a broker.
    """
    disk, table = frozenset(on_disk), frozenset(in_table)
    return disk | table if disk and table else None
