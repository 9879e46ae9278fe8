"""What a checkpoint says is durable: only what the syncs before it have covered."""

from __future__ import annotations

from typing import Any

import pytest

from storage.checkpoint.positions import CheckpointFile, Role
from storage.engine.checkpointer import Checkpointer, LogProgress
from storage.errors import StoreFailed
from storage.files.filesystem import OsFileSystem


class Queues:
    """Consume queues that count their syncs, and fail them on request."""

    def __init__(self) -> None:
        self.sync_count = 0
        self.error: OSError | None = None

    def sync(self) -> None:
        self.sync_count += 1
        if self.error is not None:
            raise self.error


class Store:
    """A checkpointer that is not started; the test says how far the store is."""

    def __init__(self, positions: CheckpointFile) -> None:
        self.progress = LogProgress(0, 0, 0, (0, 0))
        self.failures: list[BaseException] = []
        self.queues: Any = Queues()
        self.positions = positions
        self.checkpointer = Checkpointer(
            positions,
            self.queues,
            store_id=bytes(16),
            interval_ms=1,
            progress=lambda: self.progress,
        )
        self.checkpointer.add_failure_listener(self.failures.append)

    def checkpoint(self, *, appended: int, flushed: int, dispatched: int) -> tuple[int, int, int]:
        """Make one; every record is a byte long and stored at its offset's millisecond."""
        self.progress = LogProgress(appended, appended, flushed, (dispatched, 10 * dispatched))
        self.checkpointer.checkpoint()
        durable = self.positions.durable.load()
        return durable.flushed_offset, durable.dispatched_offset, durable.unit_count


@pytest.fixture
def store(tmp_path: Any) -> Store:
    positions = CheckpointFile.open(OsFileSystem(), tmp_path / "checkpoint", Role.WRITER)
    return Store(positions)


def test_units_of_records_that_are_not_flushed_are_not_said_to_be_durable(store: Store) -> None:
    """In async mode dispatch runs ahead of the flush: the last place that the flush has passed counts."""
    assert store.checkpoint(appended=5, flushed=5, dispatched=5) == (5, 5, 50)
    assert store.checkpoint(appended=9, flushed=5, dispatched=9) == (5, 5, 50)
    assert store.checkpoint(appended=12, flushed=8, dispatched=12) == (8, 5, 50)
    assert store.checkpoint(appended=15, flushed=11, dispatched=15) == (11, 9, 90)
    assert store.checkpoint(appended=15, flushed=15, dispatched=15) == (15, 15, 150)


def test_a_session_begins_with_what_was_durable_and_goes_on_from_what_the_start_has_left(
    store: Store,
) -> None:
    store.progress = LogProgress(5, 5, 5, (5, 50))
    store.checkpointer.begin((2, 20))
    durable = store.positions.durable.load()
    assert (durable.flushed_offset, durable.dispatched_offset, durable.unit_count) == (5, 2, 20)
    assert store.queues.sync_count == 0
    assert store.checkpoint(appended=9, flushed=5, dispatched=9) == (5, 5, 50)
    assert store.queues.sync_count == 1


def test_the_brokers_time_is_not_later_than_that_of_a_durable_record(store: Store) -> None:
    store.checkpoint(appended=5, flushed=5, dispatched=5)
    store.checkpoint(appended=9, flushed=6, dispatched=9)
    assert store.positions.durable.broker_fields.physic_timestamp_ms == 5
    store.checkpoint(appended=12, flushed=11, dispatched=12)
    fields = store.positions.durable.broker_fields
    assert fields.physic_timestamp_ms == fields.logics_timestamp_ms == 9


def test_nothing_new_is_neither_synced_nor_stored(store: Store) -> None:
    store.checkpoint(appended=5, flushed=5, dispatched=5)
    before = store.queues.sync_count
    store.checkpoint(appended=5, flushed=5, dispatched=5)
    assert store.queues.sync_count == before
    store.checkpointer.checkpoint(always=True)
    assert store.queues.sync_count == before + 1


def test_after_a_sync_that_failed_the_slot_stays(store: Store) -> None:
    store.checkpoint(appended=5, flushed=5, dispatched=5)
    store.queues.error = OSError("gone")
    with pytest.raises(StoreFailed, match="gone"):
        store.checkpoint(appended=9, flushed=9, dispatched=9)
    store.queues.error = None
    with pytest.raises(StoreFailed, match="gone"):
        store.checkpoint(appended=9, flushed=9, dispatched=9)
    assert store.positions.durable.load().flushed_offset == 5
    assert len(store.failures) == 1
