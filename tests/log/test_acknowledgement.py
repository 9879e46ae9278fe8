"""The table of what an acknowledgement waits for and what followers see, row by row and over a store."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from engine_store import record, small_config

from storage.clock import SystemClock
from storage.config import FlushMode, StoreConfig
from storage.engine.opening import open_engine
from storage.files.filesystem import OsFileSystem
from storage.log.acknowledgement import (
    APPENDED,
    COMMITTED,
    FLUSHED,
    POLICIES,
    AckPolicy,
    policy_of,
)
from storage.message import PullStatus
from storage.reader import StoreReader
from storage.testing import SteppedWorkers
from storage.writer import StoreWriter

ROOT = Path(__file__).resolve().parents[2]
MODES = sorted(POLICIES)


def config_of(mode: FlushMode, pool: bool, directory: Path) -> StoreConfig:
    directory.mkdir(exist_ok=True)
    return small_config(
        flush_mode=mode, transient_pool=pool, transient_pool_directory=str(directory)
    )


class Stepped:
    """A store whose parts go step by step."""

    def __init__(self, directory: Path, config: StoreConfig) -> None:
        self.workers = SteppedWorkers()
        self.writer = StoreWriter.open(directory / "store", config, workers=self.workers)
        self.writer.create_topic("t", 1)
        self.reader = StoreReader.open(directory / "store", config)
        self.end = self.writer.append_batch(record()).end_commit_offset

    def state(self) -> tuple[bool, bool]:
        """Whether the record is acknowledged, and whether a consumer would see it."""
        self.workers.step("dispatch")
        assert self.writer.acknowledged_offset in (0, self.end)
        is_shown = self.reader.pull("t", 0, queue_offset=0).status is PullStatus.FOUND
        assert is_shown == (self.writer.status().dispatched_offset == self.end)
        return self.writer.acknowledged_offset == self.end, is_shown

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


def test_every_mode_has_one_row_and_every_row_a_mode(tmp_path: Path) -> None:
    assert set(POLICIES) == {(mode, pool) for mode in get_args(FlushMode) for pool in (False, True)}
    for (mode, pool), row in POLICIES.items():
        assert policy_of(config_of(mode, pool, tmp_path)) is row


@pytest.mark.parametrize(("mode", "pool"), MODES)
def test_what_a_row_shows_is_in_the_files_and_safe_as_the_row_says(
    mode: FlushMode, pool: bool
) -> None:
    row = POLICIES[mode, pool]
    assert set(row.waits_for) | set(row.shows) <= {APPENDED, COMMITTED, FLUSHED}
    assert APPENDED not in row.shows, "followers read files, and the pool is none"
    if mode == "sync":
        assert FLUSHED in row.shows, "what a power cut could take back is shown to nobody"


STEPS = {  # (acknowledged, shown) after the append, after the commit, after the flush
    ("sync", False): [(False, False), (False, False), (True, True)],
    ("sync", True): [(False, False), (False, False), (True, True)],
    ("async", False): [(True, True), (True, True), (True, True)],
    ("async", True): [(True, False), (True, True), (True, True)],
}


@pytest.mark.parametrize(("mode", "pool"), MODES)
def test_a_store_acknowledges_and_shows_as_its_row_says(
    tmp_path: Path, mode: FlushMode, pool: bool
) -> None:
    store = Stepped(tmp_path, config_of(mode, pool, tmp_path / "shm"))
    states = [store.state()]
    for name in ("commit", "flush"):
        if name in store.workers.names:
            store.workers.step(name)
        states.append(store.state())
    assert states == STEPS[mode, pool]
    store.close()


class Replicas:
    """How far the slowest of the needed replicas is, as a test says."""

    def __init__(self) -> None:
        self.offset = 0
        self.requested = 0
        self.listeners: list[Callable[[int], None]] = []

    def request(self, offset: int) -> None:
        self.requested = max(self.requested, offset)

    def wait(self, offset: int, timeout_s: float | None = None) -> bool:
        return self.offset >= offset

    def add_listener(self, listener: Callable[[int], None]) -> None:
        self.listeners.append(listener)

    def reach(self, offset: int) -> None:
        self.offset = offset
        for listener in self.listeners:
            listener(offset)


@pytest.mark.parametrize("flushed_first", [True, False])
@pytest.mark.parametrize("pool", [True, False])
def test_a_row_may_wait_for_a_position_that_engine_writer_and_flush_do_not_know(
    tmp_path: Path, flushed_first: bool, pool: bool
) -> None:
    row = AckPolicy(waits_for=(FLUSHED, "replicated"), shows=(FLUSHED, "replicated"))
    replicas, workers, heard = Replicas(), SteppedWorkers(), []
    engine = open_engine(
        tmp_path / "store", config_of("async", pool, tmp_path / "shm"), OsFileSystem(),
        SystemClock(), workers=workers, policy=row, more_positions={"replicated": replicas},
    )  # fmt: skip
    with StoreWriter(engine, SystemClock()) as writer:
        writer.add_ack_listener(heard.append)
        writer.create_topic("t", 1)
        end = writer.append_batch(record()).end_commit_offset
        if pool:
            workers.step("commit")
        assert replicas.requested == end

        first, second = lambda: workers.step("flush"), lambda: replicas.reach(end)
        if not flushed_first:
            first, second = second, first
        first()
        workers.step("dispatch")
        assert (writer.acknowledged_offset, writer.status().dispatched_offset) == (0, 0)
        second()
        workers.step("dispatch")
        assert (writer.acknowledged_offset, writer.status().dispatched_offset) == (end, end)
        assert writer.wait_acknowledged(end, 0)
        assert heard[-1] == end


def test_a_row_that_names_a_position_which_nobody_has_is_refused(tmp_path: Path) -> None:
    row = AckPolicy(waits_for=("replicated",), shows=(COMMITTED,))
    arguments = (tmp_path, small_config(), OsFileSystem(), SystemClock())
    with pytest.raises(KeyError, match="replicated"):
        open_engine(*arguments, policy=row)
    StoreWriter.open(tmp_path, small_config()).close()  # and nothing of it is left


def test_the_table_of_the_documentation_is_this_one() -> None:
    text = (ROOT / "docs" / "durability.md").read_text()
    rows = re.findall(r"^\| `(\w+)`( \+ pool)? \| (\w+) \| (\w+) \|", text, re.MULTILINE)
    told = {(mode, bool(pool)): ((waits_for,), (shows,)) for mode, pool, waits_for, shows in rows}
    assert told == {mode: tuple(row) for mode, row in POLICIES.items()}
