"""Each that holds the log's files, alone: they stay while it does, whatever their age, and go after."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from cleaned_store import CleanedStore
from engine_store import LOG_FILE_SIZE
from staged_records import stage

from storage.errors import StoreFull


@pytest.fixture
def store(tmp_path: Path) -> CleanedStore:
    opened = CleanedStore(tmp_path)
    opened.open()
    opened.age(0)
    return opened


def fill_and_clean(store: CleanedStore) -> None:
    store.fill(400)
    store.age(100)
    store.clean()


def release(store: CleanedStore) -> None:
    """Make what was stored last durable, and clean."""
    store.machine.workers.settle()
    store.writer._engine.settle()
    store.writer._engine.checkpointer.checkpoint()
    store.age(100)
    store.clean()


def test_a_decided_commit_holds_what_it_has_stored_until_it_is_complete(
    store: CleanedStore,
) -> None:
    """Its records are looked for from where the log ended when it was decided."""
    disk = store.machine.disk
    bodies = [b"%d " % number + b"x" * 2_000 for number in range(120)]  # two files and more
    stage(store.writer.staged, "app", 0, "a", [[each] for each in bodies])
    disk.fault, disk.faults_left, disk.fault_at = (errno.ENOSPC, 0), 10**9, "commitlog"
    with pytest.raises(StoreFull):
        store.writer.staged.commit("app", 0, ["a"])
    disk.fault = None
    assert store.writer.followers.offsets()["staged"] == 0
    fill_and_clean(store)
    assert store.log_files[0] == 0

    outcome, _ = store.writer.staged.commit("app", 0, ["a"])

    assert outcome.record_count == len(bodies)
    release(store)
    assert store.log_files[0] >= LOG_FILE_SIZE
