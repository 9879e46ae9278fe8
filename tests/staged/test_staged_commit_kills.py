"""A writer that dies at any step of staging and committing: each record is stored, and only once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from dying_writer import count_steps, run_dying
from engine_store import check_queues_match_log, small_config
from staged_records import bodies_on_disk, stage
from steps_to_try import steps_to_try

from storage.writer import StoreWriter

VERSIONS = 2
pytestmark = pytest.mark.usefixtures("instant_syncs")
SIZE = 24  # records of a part; all parts together need a second log file


def bodies_of(version: int, part: int) -> list[bytes]:
    return [b"version %d part %d record %d " % (version, part, i) + b"x" * 600 for i in range(SIZE)]


def expected() -> list[bytes]:
    return [
        body for version in range(VERSIONS) for part in (0, 1) for body in bodies_of(version, part)
    ]


class Driver:
    """What a Spark driver does, again from the start of a batch after each death of its writer."""

    def __init__(self) -> None:
        self.attempts: dict[int, list[str]] = {}
        self.done: set[int] = set()
        self.round = 0

    def hear(self, told: list[str]) -> None:
        for line in told:
            kind, version, attempt = line.split(":")
            if kind == "staged":
                self.attempts.setdefault(int(version), []).append(attempt)
            else:
                self.done.add(int(version))

    def work(self, writer: StoreWriter, tell: Callable[[str], None]) -> None:
        if "t" not in {topic.name for topic in writer.list_topics()}:
            writer.create_topic("t", 2)
        for version in range(VERSIONS):
            if version in self.done:
                continue
            attempts = list(self.attempts.get(version, ()))
            if len(attempts) != 2:
                attempts = []
                for part in (0, 1):
                    attempt = f"{part}-{self.round}"
                    blocks = [
                        bodies_of(version, part)[: SIZE // 2],
                        bodies_of(version, part)[SIZE // 2 :],
                    ]
                    if stage(writer.staged, "app", version, attempt, blocks, queue_count=2):
                        tell(f"staged:{version}:{attempt}")
                    attempts.append(attempt)
                stage(writer.staged, "app", version, f"loser-{self.round}", [[b"never seen"]])
            writer.staged.commit("app", version, attempts)
            tell(f"committed:{version}:")

    def next_round(self) -> None:
        """Forget attempts of which not all were staged: they are staged again under other ids."""
        self.round += 1
        for version, attempts in list(self.attempts.items()):
            if len(attempts) != 2:
                del self.attempts[version]


def check_end(directory: Path) -> None:
    assert bodies_on_disk(directory) == expected()
    assert check_queues_match_log(directory) == len(expected())
    assert len(list((directory / "commitlog").iterdir())) > 1
    left = [path.name for path in (directory / "staged").rglob("*") if path.is_file()]
    assert left == []


@pytest.mark.parametrize(("flush_mode", "torn", "share"), [("async", False, 0), ("sync", True, 2)])
def test_a_death_at_every_step(tmp_path: Path, flush_mode: str, torn: bool, share: int) -> None:
    count = count_steps(tmp_path / "whole", Driver().work, flush_mode=flush_mode)
    assert count > 60
    for fatal in steps_to_try(range(1, count + 1), 12, start=share):
        directory = tmp_path / f"{fatal}"
        driver = Driver()
        ended, told = run_dying(directory, driver.work, fatal, torn=torn, flush_mode=flush_mode)
        assert not ended
        driver.hear(told)
        driver.next_round()
        with StoreWriter.open(directory, small_config(flush_mode=flush_mode)) as writer:
            driver.work(writer, lambda _: None)
        check_end(directory)


@pytest.mark.parametrize("seed", steps_to_try(range(12), 6))
def test_deaths_one_after_the_other_also_while_recovering(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    pool = tmp_path / "pool"
    pool.mkdir()
    mode = {"flush_mode": ("async", "sync")[seed % 2], "transient_pool": seed % 4 > 1}
    driver = Driver()
    ended = False
    while not ended:
        ended, told = run_dying(
            tmp_path / "store", driver.work, dice.randint(1, 40), torn=dice.random() < 0.5,
            transient_pool_directory=str(pool), **mode,
        )  # fmt: skip
        driver.hear(told)
        driver.next_round()
        assert driver.round < 200
    check_end(tmp_path / "store")
