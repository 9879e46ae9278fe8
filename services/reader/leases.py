"""Leases as the service asks for them: by the group's name, with its settings as they are now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from services.rpc.status import InvalidArgument
from storage.config import LeaseConfig
from storage.errors import (
    GroupPaused,
    QueueNotFound,
    StoreBusy,
    StoreError,
    TopicNotFound,
)
from storage.format.names import consumer_group_problem
from storage.leases.leases import Leases
from storage.leases.values import (
    OffsetCommit,
    QueueLeases,
    ReceivedBatch,
    ReceiveQuestion,
    Refusal,
)
from storage.reader import StoreReader
from storage.tables.groups import GroupConfig

GROUPS_MAX: Final = (
    10_000  # that are made by a receive: whoever makes up names fills no more than that
)
RETRY_DELAY_MS: Final = 60_000
ROUNDED_MS: Final = 1  # two clocks that agree


class ReaderLeases(Leases):
    """For the thread of the leases; the event loop may call what waits for no lock."""

    def __init__(
        self, reader: StoreReader, *, config: LeaseConfig, auto_create_groups: bool
    ) -> None:
        super().__init__(reader, config=config)
        self._reader = reader
        self._auto_create_groups = auto_create_groups

    def due_in_seconds(
        self, group: str, topic: str, queue_ids: Collection[int] = ()
    ) -> float | None:
        """Return how long to wait until something that was handed out may be due; None if nothing is.

        With ``queue_ids`` to who receives from these queues alone. It waits for no lock, as the next two.
        """
        nearest_ms = self.nearest_ms(group, topic, queue_ids)
        if nearest_ms is None:
            return None
        return max(0.0, (nearest_ms - self.clock.now_ms() + 1) / 1e3)

    def is_orderly(self, group: str) -> bool:
        """Return whether a group's messages come in the order of their message groups, or may, for all that is known."""
        config = self._groups.find_kept(group)
        return config is None or config.orderly

    def begins_at_latest(self, group: str, topic: str) -> bool:
        """Return whether a group is about to begin in a topic at what is stored from now on."""
        config = self._groups.find_kept(group)
        return (
            config is not None and config.begin == "latest" and topic not in self.topics_of(group)
        )

    def begin_leasing(self, group: str, topic: str, question: ReceiveQuestion) -> ReceivedBatch:
        """As ``lease``; a group that does not exist is made, if groups are made so.

        Also raises StoreBusy where there are too many for that.
        """
        if self._auto_create_groups and self._groups.find(group) is None:
            self.queues.queue_ids(topic)  # raises TopicNotFound
            if len(self._groups.all()) >= GROUPS_MAX:
                raise StoreBusy(
                    f"there are {GROUPS_MAX} consumer groups; no more are made by a receive",
                    retry_delay_ms=RETRY_DELAY_MS,
                )
            self._groups.find_or_create(group)
        return self.lease(group, topic, question)

    def lease(self, group: str, topic: str, question: ReceiveQuestion) -> ReceivedBatch:
        """Lease what can be handed out now; its end is by the wall clock. Raises GroupNotFound, GroupPaused, and as ``receive``."""
        config = self._groups.get(group)
        if not config.consume_enable:
            raise GroupPaused(group)
        batch = self.receive(config, topic, question)
        end_ms = self.clock.unix_ms(batch.lease_end_ms)
        is_set = abs(end_ms - batch.lease_end_ms) > ROUNDED_MS  # somebody has set the clock
        return replace(batch, lease_end_ms=end_ms) if is_set else batch

    def change_or_give_back(
        self, group: str, topic: str, receipt_handles: bytes, duration_ms: int | None
    ) -> tuple[list[Refusal], int]:
        """Return which handles are refused, and when the leases of the others end: Unix ms.

        Without a duration the group's backoff says when messages are handed out again, and 0 is returned.
        """
        if duration_ms is None:
            return self.give_back(self._groups.settings_of(group), topic, receipt_handles), 0
        end_ms = self.clock.unix_ms(self.clock.now_ms() + duration_ms)
        return self.change(group, topic, receipt_handles, duration_ms), end_ms

    # ---- progress

    def commit_existing(self, offsets: Sequence[OffsetCommit]) -> list[Exception | None]:
        """Set groups' offsets; one beyond its queue's end is refused. See ``commit``."""
        problems = [self._problem_of(offset) for offset in offsets]
        good = [
            offset for offset, problem in zip(offsets, problems, strict=True) if problem is None
        ]
        outcomes = iter(self.commit(good))
        return [next(outcomes) if problem is None else problem for problem in problems]

    def _problem_of(self, offset: OffsetCommit) -> Exception | None:
        problem = consumer_group_problem(offset.group)
        if problem:
            return InvalidArgument("group", problem)
        try:
            high = self._reader.max_offset(offset.topic, offset.queue_id, offset.queue_offset)
        except (StoreError, OSError) as error:
            return error
        if offset.queue_offset > high:
            return InvalidArgument(
                "queue_offset", f"is {offset.queue_offset}, and the queue ends at {high}"
            )
        return None

    @property
    def problem(self) -> str:
        """Why nothing is leased or acknowledged until the reader starts again, "" if nothing is wrong."""
        return str(self.failure or "")

    def progress(self, group: GroupConfig, topic: str) -> list[QueueLeases]:
        """Return where a group is in the queues of a topic and its retry topics; none for a topic that is gone."""
        if topic not in self.topics_of(group.name):
            return []
        try:
            return super().progress(group, topic)
        except (TopicNotFound, QueueNotFound):
            return []

    def progress_of(self, group: str) -> list[QueueLeases]:
        """Return where a group is in the queues of all topics of which it was handed messages."""
        config = self._groups.settings_of(group)
        topics = self.topics_of(group)
        return [queue for topic in topics for queue in self.progress(config, topic)]
