"""Executors that share nothing but the store's directory; one of them killed in the middle of a read."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from golden import golden_dump, golden_store

from storage import MessageStore
from storage.config import StoreConfig
from storage.format.record import decode_record, encode_for_batch

SCRIPT = Path(__file__).parents[2] / "support" / "spark_support" / "spark_on_a_cluster.py"
STORES = ("basic", "lmq", "syncflush")
RECORDS = 40_000
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def fill(directory: Path) -> None:
    """Write a store of 40 MiB."""
    rng = random.Random(3)
    batch = [
        encode_for_batch("t", n % 4, rng.randbytes(900), b"KEYS\x01k\x02", 0, 0, 1, "127.0.0.1:1")
        for n in range(500)
    ]
    with MessageStore.open(directory, StoreConfig(commit_log_file_size=64 << 20)) as store:
        store.create_topic("t", 4)
        for _ in range(RECORDS // len(batch)):
            store.put_batch(b"".join(batch))


def digest_of(directory: Path) -> str:
    """Digest every record's offset and body, decoded one by one."""
    digest = hashlib.sha256()
    log = min((directory / "commitlog").iterdir()).read_bytes()
    position = 0
    for _ in range(RECORDS):
        record = decode_record(log, position)
        digest.update(f"{position} {hashlib.sha1(record.body).hexdigest()}\n".encode())
        position += record.total_size
    return digest.hexdigest()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What a run on two executors found, and the big store it read."""
    directory = tmp_path_factory.mktemp("cluster")
    fill(directory / "big")
    stores = [str(golden_store(name)) for name in STORES]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(directory / "big"), str(directory), *stores],
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), directory / "big"


def test_a_killed_executor_loses_and_doubles_nothing(ran: tuple[dict[str, Any], Path]) -> None:
    found, big = ran
    assert len(found["killed_after_tasks"]) == 1
    assert found["big"] == [RECORDS, digest_of(big)]


@pytest.mark.parametrize("name", STORES)
def test_executors_read_a_brokers_store_by_its_directory_alone(
    ran: tuple[dict[str, Any], Path], name: str
) -> None:
    found, _ = ran
    wanted = [x for x in golden_dump(name) if x["type"] in ("message", "unqueued")]
    assert found["executors"] == 2
    assert found["counts"][str(golden_store(name))] == sorted(
        {line["commitLogOffset"] for line in wanted}
    )


@pytest.mark.parametrize("name", STORES)
def test_jobs_on_a_cluster_audit_and_rebuild_as_here(
    ran: tuple[dict[str, Any], Path], name: str
) -> None:
    """Queues byte for byte the broker's, and nothing found wrong."""
    found, _ = ran
    store = golden_store(name)
    queues = store / "consumequeue"
    assert found["findings"][str(store)] == 0
    assert found["rebuilt"][str(store)] == {
        str(path.relative_to(queues)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in queues.rglob("*")
        if path.is_file()
    }
