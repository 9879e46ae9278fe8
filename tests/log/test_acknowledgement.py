"""The table of what an acknowledgement waits for and what followers see, row by row and over a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from engine_store import record, small_config

from storage.config import FlushMode, StoreConfig
from storage.log.acknowledgement import (
    APPENDED,
    COMMITTED,
    FLUSHED,
    POLICIES,
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
    assert set(row) <= {APPENDED, COMMITTED, FLUSHED}
    assert row.shows != APPENDED, "followers read files, and the pool is none"
    if mode == "sync":
        assert row.shows == FLUSHED, "what a power cut could take back is shown to nobody"


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


def test_the_table_of_the_documentation_is_this_one() -> None:
    text = (ROOT / "docs" / "durability.md").read_text()
    rows = re.findall(r"^\| `(\w+)`( \+ pool)? \| (\w+) \| (\w+) \|", text, re.MULTILINE)
    told = {(mode, bool(pool)): (waits_for, shows) for mode, pool, waits_for, shows in rows}
    assert told == {mode: tuple(row) for mode, row in POLICIES.items()}
