"""Whose records count: those of topics that are there, from the last deletion of their name on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.tables.topics import QUEUE_COUNT_MAX


@dataclass(frozen=True, slots=True)
class LiveTopics:
    """Which records of a log belong into queues.

    ``deleted`` gives the commit offset from which on a topic's records count again. Records of topics that
    are not among ``known`` count nowhere, if that is given; those in light queues do.
    """

    deleted: Mapping[str, int] = field(default_factory=dict)
    known: frozenset[str] | None = None

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

    def since(self, topic: str) -> int:
        """Return the commit offset from which on a topic's records count."""
        return self.deleted.get(topic, 0)


def topics_there_are(on_disk: Iterable[str], in_table: Iterable[str]) -> frozenset[str] | None:
    """Return the topics that have queues on disk or are in the table, None where one of them is lost.

    After an orderly stop a topic that is not among them was deleted by a broker.
    """
    disk, table = frozenset(on_disk), frozenset(in_table)
    return disk | table if disk and table else None
