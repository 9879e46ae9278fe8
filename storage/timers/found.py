"""What a start makes of saved progress: what is pending, and which copies the log has that no progress knows of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from storage.format.names import TIMER_TOPIC
from storage.format.store_time import HEAD_SIZE, store_time_in
from storage.format.timer_files import out_ms
from storage.kernels.columns import FEATURES, HAS_DELAY, HAS_TIMER
from storage.kernels.timers.delivery import delivered_identities
from storage.timers.broker_check import BrokerProgress
from storage.timers.pending import TimerBlock
from storage.timers.progress import FoundProgress, TimerProgress
from storage.view.log.follower import LogFollower

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.view.log.commit_log import CommitLogView
    from storage.view.log.walk import RecordRun

Longs = npt.NDArray[np.int64]
BROKER_SLACK_MS: Final = 60_000  # a broker's progress is older than its last deliveries by less


class Resumed(NamedTuple):
    """Where delivery goes on. Of what a broker delivered since ours, ``broker`` says more."""

    progress: TimerProgress
    broker: BrokerProgress | None


def resumed(found: FoundProgress, engine: Engine, log: CommitLogView) -> Resumed:
    """Return where delivery goes on in a store with that progress."""
    queues = engine.queues
    end = engine.recovered.end_offset
    own, broker = found.own, found.broker
    if own is None:
        is_used = queues.known(TIMER_TOPIC, 0) is not None or any(
            queues.known(SCHEDULE_TOPIC, level) is not None for level in range(len(DELAY_LEVELS_MS))
        )
        begin = end
        if is_used:
            begin = log.min_offset if broker is None else _file_before(log, broker.read_ms)
        own = TimerProgress(commit_offset=begin, queue_offset=0, levels={}, blocks=[])
    timers_end = queues.next_offset(TIMER_TOPIC, 0)
    levels = {
        level: min(
            max(own.levels.get(level, 0), found.levels.get(level, 0)),
            queues.next_offset(SCHEDULE_TOPIC, level - 1),
        )
        for level in own.levels.keys() | found.levels.keys()
        if 1 <= level <= len(DELAY_LEVELS_MS)
    }
    blocks = [kept for block in own.blocks if (kept := _kept(block, timers_end, broker))]
    own = replace(
        own, commit_offset=max(min(own.commit_offset, end), log.min_offset),
        queue_offset=min(own.queue_offset, timers_end), levels=levels, blocks=blocks,
    )  # fmt: skip
    return Resumed(own, broker)


def _kept(block: TimerBlock, timers_end: int, broker: BrokerProgress | None) -> TimerBlock | None:
    """Return the rows of a block that are still pending; the block itself if all are."""
    if not len(block):
        return None
    dues_ms = block.dues_ms(block.head, len(block.rows))
    offsets = block.queue_offsets(block.head, len(block.rows))
    kept = offsets < timers_end
    if broker is not None:
        kept &= (out_ms(dues_ms) >= broker.read_ms) | (offsets >= broker.queue_offset)
    if kept.all():
        return block
    return TimerBlock.of(dues_ms[kept], offsets[kept]) if kept.any() else None


def _file_before(log: CommitLogView, time_ms: int) -> int:
    """Return the start of the last file of the log that begins well before a time."""
    found = log.min_offset
    for start in log.file_starts:
        head = log.bytes_at(max(start, log.min_offset), HEAD_SIZE)
        if head is None or store_time_in(head) > time_ms - BROKER_SLACK_MS:
            break
        found = max(start, log.min_offset)
    return found


class DeliveredBefore:
    """Copies that the log had at the start, by identity; each stands for one record that is not delivered again."""

    def __init__(self, identities: Longs) -> None:
        self._identities, self._counts = np.unique(identities, return_counts=True)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def has(self, identities: Longs) -> npt.NDArray[np.bool_]:
        """Return for which of some records there is a copy; of as many as there are, for the first ones."""
        if not len(self._identities):
            return np.zeros(len(identities), np.bool_)
        places = self._places(identities)
        order = np.argsort(identities, kind="stable")
        ordered = identities[order]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        found: npt.NDArray[np.bool_] = (self._identities[places] == identities) & (
            ranks < self._counts[places]
        )
        return found

    def take(self, identities: Longs) -> None:
        """Forget one copy of each of some records that ``has`` was true of."""
        if len(identities):
            np.subtract.at(self._counts, self._places(identities), 1)
            left = self._counts > 0
            self._identities, self._counts = self._identities[left], self._counts[left]

    def _places(self, identities: Longs) -> Longs:
        places = np.searchsorted(self._identities, identities)
        return np.minimum(places, len(self._identities) - 1)


def delivered_since(commit_offset: int, engine: Engine) -> DeliveredBefore:
    """Return the delivered copies that the log has from ``commit_offset`` on."""
    walk = _DeliveredCopies(engine, commit_offset)
    while walk.step(engine.recovered.end_offset):
        pass
    return DeliveredBefore(np.concatenate(walk.identities))


class _DeliveredCopies(LogFollower):
    """Collects the identities of delivered copies."""

    def __init__(self, engine: Engine, position: int) -> None:
        super().__init__(engine.log.files, position)
        self.identities: list[Longs] = [np.empty(0, np.int64)]

    def take(self, records: RecordRun) -> None:
        """Add those of a run."""
        rows = records.rows
        if not np.bitwise_or.reduce(rows[:, FEATURES]) & (HAS_DELAY | HAS_TIMER):
            return
        identities = np.empty(len(rows), np.int64)
        count = int(delivered_identities(records.data, rows, len(rows), identities))
        assert count >= 0
        self.identities.append(identities[:count].copy())
