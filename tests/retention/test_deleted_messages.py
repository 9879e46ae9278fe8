"""What groups that are behind meet of deleted messages: they go on at the minimum, and know how many were deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from cleaned_store import CleanedStore
from engine_store import small_config
from lease_store import TOPIC, LeaseStore, bodies

from penstock.consuming.consumption import Consumption, QueueProgress
from penstock.consuming.options import ConsumeOptions
from penstock.retry import RetryPolicy
from penstock.values import PullResult, PullStatus
from storage import Message, MessageStore
from storage.errors import RecordNotFound
from storage.reader import StoreReader
from storage.writer import StoreWriter


@pytest.fixture
def store(tmp_path: Path) -> CleanedStore:
    return CleanedStore(tmp_path)


def test_a_consumer_counts_what_was_deleted_before_it_read_it() -> None:
    queue = QueueProgress(0, queue_offset=3)
    options = ConsumeOptions(topic="t", follow=False)
    core = Consumption(options, [queue], RetryPolicy())
    [(queue, _)] = core.due(0)
    core.on_result(
        queue,
        PullResult(
            status=PullStatus.OFFSET_TOO_SMALL, next_offset=10, min_offset=10, max_offset=12,
            records=(), damaged=(),
        ),
        0,
    )  # fmt: skip
    assert core.deleted_counts == {0: 7}
    assert core.positions(with_current=True) == {0: 10}
    assert [each.queue_id for each, _ in core.due(0)] == [0] and queue.fetch_offset == 10


def test_a_deleted_record_is_not_found_and_not_damaged(store: CleanedStore) -> None:
    writer = store.open()
    store.fill(600)
    with StoreReader.open(
        store.machine.directory,
        writer.config,
        filesystem=store.machine.disk,
        clock=store.machine.clock,
    ) as reader:
        reader.message(0)
        store.age()
        store.clean()
        with pytest.raises(RecordNotFound):
            reader.message(0)


def test_leases_on_deleted_messages_end_and_the_group_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "leased"
    with MessageStore.open(directory, small_config()) as made:
        made.create_topic(TOPIC, 1)
        for begin in range(0, 2_000, 100):
            made.put_all(
                [Message(topic=TOPIC, body=b"%d" % number) for number in range(begin, begin + 100)]
            )
    store = LeaseStore(directory)
    held = store.receive(32)
    assert bodies(held) == list(range(32))
    with StoreWriter.open(directory, small_config()) as writer:
        assert writer.retention.delete_expired(0)
        assert writer.status().min_commit_offset > 0

    store.clock.pass_ms(10 * 60_000)
    found = bodies(store.receive(32))

    first = store.reader.min_offset(TOPIC, 0)
    assert first > 32 and found == list(range(first, first + 32))
    store.acknowledge(held.receipt_handles)
    assert bodies(store.receive(32)) == list(range(first + 32, first + 64))
    store.leases.close()
    store.reader.close()


def test_a_topic_made_again_is_another_one_after_its_old_records_are_gone(tmp_path: Path) -> None:
    """Leases, streams' checkpoints and exports remember queue offsets with the incarnation, for longer than the log."""
    store = CleanedStore(tmp_path)
    store.open().create_topic("again", 1)
    store.writer.create_topic("gone", 1)
    store.fill(100)
    store.writer.delete_topic("again")
    store.writer.delete_topic("gone")
    deleted_at = store.writer._engine.log.appended_offset
    store.fill(500)
    store.age()
    store.clean()
    assert store.writer.retention.report().min_commit_offset > deleted_at
    store.writer.create_topic("other", 1)
    store.writer.delete_topic("other")
    store.writer.close()
    store.open()
    for name in ("again", "gone"):
        store.writer.create_topic(name, 1)

    with StoreReader.open(
        store.machine.directory, store.writer.config,
        filesystem=store.machine.disk, clock=store.machine.clock,
    ) as reader:  # fmt: skip
        assert [reader.incarnation_of(name) for name in ("again", "gone")] == [deleted_at] * 2
    store.writer.close()
