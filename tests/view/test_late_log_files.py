"""A log file that got its name after the one behind it, as when the first try to make it failed: nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import LOG_FILE_SIZE, append, record, small_config
from real_processes import until

from storage.files.filesystem import OsFileSystem
from storage.index.follower import LogReader
from storage.reader import StoreReader
from storage.writer import StoreWriter

BODY = bytes(10_000)


def name(number: int) -> str:
    return f"{number * LOG_FILE_SIZE:020d}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three files, of which the second is not there yet."""
    log = tmp_path / "commitlog"
    log.mkdir()
    for number in (0, 2):
        (log / name(number)).write_bytes(bytes(LOG_FILE_SIZE))
    return log


def test_a_follower_does_not_pass_over_it(log: Path) -> None:
    files = LogReader(OsFileSystem(), log)
    assert files.find(0) is not None
    (log / name(1)).write_bytes(bytes(LOG_FILE_SIZE))
    assert files.next_start(LOG_FILE_SIZE - 8) == LOG_FILE_SIZE


def test_every_record_is_pulled_whenever_the_directory_was_listed(tmp_path: Path) -> None:
    config = small_config(warm_ahead_bytes=0)
    with StoreWriter.open(tmp_path, config) as writer:
        writer.create_topic("t", 1)
        assert writer.wait_dispatched(append(writer, record(body=BODY)).end_commit_offset, 30)
        late = tmp_path / "commitlog" / name(1)
        until(late.with_name(name(2)).exists)  # they are made ahead of need
        aside = late.rename(tmp_path / "aside")
        with StoreReader.open(tmp_path) as reader:
            assert reader.pull("t", 0, queue_offset=0).queue_offsets == (0,)
            aside.rename(late)
            for _ in range(10):  # they end in it
                end = append(writer, record(body=BODY)).end_commit_offset
            assert LOG_FILE_SIZE < end < 2 * LOG_FILE_SIZE
            assert writer.wait_dispatched(end, 30)
            result = reader.pull("t", 0, queue_offset=0, max_messages=100, max_bytes=1 << 30)
            assert not result.damaged
            assert result.queue_offsets == tuple(range(11))
