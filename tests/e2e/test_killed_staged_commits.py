"""Writer and driver of staged commits killed at seeded moments: every row is stored once, in order.

``KILLS`` says how many (``make kill-test``: 500). A driver that dies loses what it held in memory and
comes back from its checkpoint, as a query of Spark does.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from engine_store import check_queues_match_log, records_on_disk
from service_process import WriterProcess
from staged_records import staged
from steps_to_try import cases_to_try

from penstock import Client
from penstock.errors import PenstockError
from storage.format.stage import PREFIX_SIZE

KILLS = int(os.environ.get("KILLS", "8"))  # a writer takes seconds to start again
PARTS = 2
ROWS = 200


def body(version: int, part: int, row: int) -> bytes:
    return b"%d %d %d " % (version, part, row) + b"." * 400


class Checkpoint:
    """What of a driver is durable: the next version, and how many rows it will have."""

    def __init__(self) -> None:
        self.version = 0


class Driver(threading.Thread):
    """Stages and commits version after version until it is killed or stopped."""

    def __init__(self, address: str, checkpoint: Checkpoint, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self._client = Client(writer=address, timeout_s=60)
        self._checkpoint = checkpoint
        self._dice = dice
        self._dead = threading.Event()
        self.stopping = threading.Event()
        self.problem: BaseException | None = None
        self.start()

    def die(self) -> None:
        """Break every call under way; the writer is not informed."""
        self._dead.set()
        self._client.close()
        self.join(60)
        assert not self.is_alive()

    def run(self) -> None:
        try:
            with ThreadPoolExecutor(PARTS) as tasks:
                while not self._dead.is_set() and not self.stopping.is_set():
                    version = self._checkpoint.version
                    staged_commit = self._client.staged_commit("query", version)
                    staging = [
                        tasks.submit(self._stage, staged_commit, part) for part in range(PARTS)
                    ]
                    attempts = [each.result() for each in staging]
                    staged_commit.commit([attempt for attempt in attempts if attempt], timeout_s=60)
                    if not self._dead.is_set():
                        self._checkpoint.version = version + 1
        except BaseException as error:  # noqa: BLE001  told to the test
            if not self._dead.is_set():
                self.problem = error

    def _stage(self, staged_commit, part: int) -> str:
        """Stage a task's rows until it works; "" if the staged commit was decided before."""
        version = staged_commit.version
        while True:
            attempt = f"{part}-{self._dice.getrandbits(60):x}"
            blocks = [
                staged(
                    "query", version, attempt, [body(version, part, row) for row in rows],
                    first=rows[0], queue_count=PARTS, topic="t",
                )
                for rows in (range(ROWS // 2), range(ROWS // 2, ROWS))
            ]  # fmt: skip
            try:
                return "" if staged_commit.stage(attempt, blocks).decided else attempt
            except (PenstockError, grpc.RpcError, ValueError):
                if self._dead.is_set():
                    raise
                time.sleep(0.05)


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("flush_mode", cases_to_try(["async", "sync"]))
def test_killed_writers_and_drivers(tmp_path: Path, flush_mode: str) -> None:
    dice = random.Random(f"{flush_mode} {KILLS}")
    checkpoint = Checkpoint()
    kills = {"writer": 0, "driver": 0}
    with WriterProcess(tmp_path / "store", "--flush-mode", flush_mode) as writer:
        with writer.client() as client:
            client.create_topic("t", queues=PARTS)
        driver = Driver(writer.address, checkpoint, dice)
        while sum(kills.values()) < KILLS // 2:
            time.sleep(dice.expovariate(1 / 0.08))
            first = not sum(kills.values())
            victim = "writer" if first else dice.choice(["writer", "driver", "driver"])
            kills[victim] += 1
            if victim == "writer":
                writer.kill()
                writer.start()
            else:
                driver.die()
                driver = Driver(writer.address, checkpoint, dice)
            assert driver.problem is None, driver.problem
        before = checkpoint.version
        while checkpoint.version < before + 2 and driver.problem is None:
            time.sleep(0.01)
        driver.stopping.set()
        driver.join(60)
        assert driver.problem is None, driver.problem
        with writer.client() as client:
            (app,) = client.staged_commits()
            assert app.last_version == checkpoint.version - 1
        writer.stop()
    check_stored(tmp_path / "store", checkpoint.version)


def check_stored(store: Path, versions: int) -> None:
    found = records_on_disk(store)
    wanted = [
        body(version, part, row)
        for version in range(versions)
        for part in range(PARTS)
        for row in range(ROWS)
    ]
    assert [each.body for each in found] == wanted
    assert len({each.properties["UNIQ_KEY"][:PREFIX_SIZE] for each in found}) == versions * PARTS
    check_queues_match_log(store)
    left = [path.name for path in (store / "staged").rglob("*") if path.is_file()]
    assert left == []
