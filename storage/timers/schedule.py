"""Where messages with a delay go until they are due: the records of a batch are written for a system topic.

A broker's form, in ``storage.kernels.timers``. It is done before the append, and only for batches of
which some record has a property that asks for a delay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import copied, prepared_copies
from storage.engine.put_results import ASKS_FOR_DELAY
from storage.errors import InvalidBatch
from storage.format.consume_entry import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from storage.format.names import TIMER_TOPIC
from storage.format.properties import DELAY
from storage.format.record_layout import BLANK_SIZE
from storage.kernels import timers as kernels
from storage.kernels.columns import FEATURES, SIZE
from storage.kernels.copies import dropped_names, new_targets
from storage.kernels.timers import DELIVERY_PAIRS_MAX

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.log.batches import Prepared

DELAY_MS_MAX: Final = 40 * 86_400_000
QUEUE_COUNTS: Final = {SCHEDULE_TOPIC: len(DELAY_LEVELS_MS), TIMER_TOPIC: 1}
_DROPPED: Final = dropped_names([DELAY])
_GROWTH: Final = kernels.PAIRS_SIZE_MAX + DELIVERY_PAIRS_MAX + 64
_PROBLEMS: Final = {
    kernels.TOO_FAR: f"TIMER_DELIVER_MS: a message can be delayed for {DELAY_MS_MAX // 86_400_000} days at most",
    kernels.LEVEL_AND_TIME: "DELAY: a message has a delay level or a time of delivery, not both",
    kernels.NO_ROOM: "properties: there is no room for those of a delayed message",
}


class Schedule:
    """Writes batches anew of which some records are delayed. Safe to call from several threads."""

    def __init__(self, engine: Engine, topics: TopicChanges, clock: Clock) -> None:
        self._engine = engine
        self._topics = topics
        self._clock = clock
        self._record_size_max = engine.log.files.file_size - BLANK_SIZE - _GROWTH

    def park(self, prepared: Prepared) -> Prepared | None:
        """Return the batch as it is to be stored; None if none of its records is delayed.

        Raises InvalidBatch with the index of the first record whose delay cannot be, StoreFull.
        """
        count = prepared.record_count
        end = prepared.data.size
        text = np.empty(end + kernels.TOPICS_SIZE + count * kernels.PAIRS_SIZE_MAX, np.uint8)
        text[:end] = prepared.data
        rows = prepared.rows[:count]
        targets = new_targets(count)
        parked, row, problem, _ = kernels.plan_parking(
            text, rows, count, self._clock.now_ms(), DELAY_MS_MAX, end, targets
        )
        if problem:
            raise InvalidBatch(int(row), _PROBLEMS[int(problem)])
        if not parked:
            return None
        longest = int(rows[:, SIZE].argmax())
        if rows[longest, SIZE] > self._record_size_max:
            raise InvalidBatch(longest, "body: too long for a message that is delayed")
        self._topics.ensure(QUEUE_COUNTS)
        copies = copied(text, rows, text, targets, _DROPPED)
        return prepared_copies(self._engine, copies, count)

    def refuse(self, prepared: Prepared) -> Prepared:
        """Return a batch of which no record is delayed. Raises InvalidBatch with the index of the first that is."""
        features = prepared.rows[: prepared.record_count, FEATURES]
        if prepared.features & ASKS_FOR_DELAY and self.park(prepared) is not None:
            delayed = int(np.flatnonzero(features & ASKS_FOR_DELAY)[0])
            raise InvalidBatch(delayed, "a staged record cannot be delayed")
        return prepared
