"""A deleted topic is remembered for good, also when retention has deleted all that was stored before."""

from __future__ import annotations

from pathlib import Path

from cleaned_store import CleanedStore

from storage.reader import StoreReader


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
        store.machine.store, store.writer.config,
        filesystem=store.machine.disk, clock=store.machine.clock,
    ) as reader:  # fmt: skip
        assert [reader.incarnation_of(name) for name in ("again", "gone")] == [deleted_at] * 2
    store.writer.close()
