"""Who follows the log, and how much of it is still needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_store import record, small_config

from storage.clock import SystemClock
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer
from storage.log.followers import DurableNeed, Followers
from storage.testing import SteppedWorkers
from storage.writer import StoreWriter


def test_the_least_of_what_they_need_is_known() -> None:
    followers = Followers()
    assert followers.needed_offset() is None
    followers.register("a", lambda: 7)
    followers.register("b", lambda: 5)
    followers.register("idle", lambda: None)
    assert followers.offsets() == {"a": 7, "b": 5}
    assert followers.needed_offset() == 5
    with pytest.raises(ValueError, match="'a'"):
        followers.register("a", lambda: 1)
    followers.remove("b")
    followers.remove("b")
    assert followers.needed_offset() == 7


class LogEnds:
    """Where a log ends."""

    appended_offset = 1_000
    flushed_offset = 1_000


def test_what_is_copied_is_needed_until_the_copy_is_durable() -> None:
    log: Any = LogEnds()
    pending: list[int] = [300, 600]
    needs = DurableNeed(lambda: min(pending, default=None), log)
    assert needs() == 300
    log.appended_offset = 1_100  # the copy of the first
    pending.remove(300)
    assert needs() == 300
    log.appended_offset = 1_200
    pending.remove(600)
    assert needs() == 300
    log.flushed_offset = 1_100
    assert needs() == 600, "its copy ends at 1200"
    pending.append(500)  # found again
    assert needs() == 500
    pending.clear()
    log.flushed_offset = 1_200
    assert needs() is None
    log.appended_offset = 1_300
    assert needs() == 1_200, "what is beyond may have been copied since"
    log.flushed_offset = 1_300
    assert needs() is None


def test_a_writer_says_how_much_of_the_log_is_needed(tmp_path: Path) -> None:
    workers = SteppedWorkers()
    config = small_config()
    with StoreWriter.open(tmp_path, config, workers=workers) as writer:
        writer.create_topic("t", 1)
        ends = [writer.append_batch(record(keys="k")).end_commit_offset for _ in range(3)]
        end = ends[-1]

        def followers() -> dict[str, int]:
            status = writer.status()
            assert status.needed_commit_offset == min(status.followers.values())
            return dict(status.followers)

        assert followers()["timers"] == 0, "what is pending is not known yet"
        workers.step("timers")
        copying = {"timers": 0, "transactions": 0}  # who may have copied what is not durable yet
        assert followers() == {"flush": 0, "dispatch": 0, "checkpoint": 0} | copying
        workers.step("dispatch")
        assert followers() == {"flush": 0, "dispatch": end, "checkpoint": 0} | copying
        workers.step("flush")
        assert followers() == {"flush": end, "dispatch": end, "checkpoint": 0}
        workers.step("checkpoint")
        assert writer.status().needed_commit_offset == end

        arguments = {"filesystem": FileSystem(), "clock": SystemClock()}
        with StoreIndexer.open(tmp_path, config, workers=workers, **arguments) as indexer:
            workers.settle()
            indexer.step()
            assert followers()["index"] == indexer.durable_offset < end
            indexer.sync()
            assert followers()["index"] == indexer.durable_offset == end

        writer.followers.register("replica", lambda: ends[0])
        assert writer.status().needed_commit_offset == ends[0]
        writer.append_batch(record())
    with StoreWriter.open(tmp_path, config, workers=SteppedWorkers()) as writer:
        assert writer.status().followers["index"] == end, (
            "the indexer has stopped, and goes on there"
        )
