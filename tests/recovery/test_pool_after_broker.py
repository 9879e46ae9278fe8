"""A writer with the pool is killed, a broker runs on the directory, and our next start finds the pool."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from engine_store import check_queues_match_log, record, small_config
from staged_records import bodies_on_disk

from storage.config import StoreConfig
from storage.testing import SteppedWorkers
from storage.writer import StoreWriter


@pytest.fixture
def pool_config(tmp_path: Path) -> StoreConfig:
    (tmp_path / "shm").mkdir()
    return small_config(transient_pool=True, transient_pool_directory=str(tmp_path / "shm"))


@pytest.fixture
def killed(tmp_path: Path, pool_config: StoreConfig) -> Path:
    """A store with a message in its file, and two that only the pool holds."""
    store, shm, killed = (tmp_path / name for name in ("store", "shm", "killed"))
    workers = SteppedWorkers()
    with StoreWriter.open(store, pool_config, workers=workers) as writer:
        writer.create_topic("t", 1)
        writer.append_batch(record(body=b"ours"))
        workers.settle()
        writer.append_batch(record(body=b"pool 1") + record(body=b"pool 2"))
        shutil.copytree(store, killed)
        shutil.copytree(shm, tmp_path / "left")
    for path in (tmp_path / "left").iterdir():
        shutil.copy(path, shm)
    return killed


def run_a_broker(killed: Path, *bodies: bytes) -> None:
    """Append to log and queue what a broker would, and say in the page that it ran."""
    copy = killed.with_name("broker")
    shutil.copytree(killed, copy)
    with StoreWriter.open(copy, small_config()) as writer:
        for body in bodies:
            writer.append_batch(record(body=body))
    for name in ("commitlog", "consumequeue"):
        shutil.copytree(copy / name, killed / name, dirs_exist_ok=True)
    (killed / "abort").unlink()
    with (killed / "checkpoint").open("r+b") as page:
        page.write(struct.pack(">q", 1_900_000_000_000))


def test_the_pool_is_not_replayed_over_what_a_broker_has_written(
    killed: Path, pool_config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    run_a_broker(killed, b"broker 1", b"broker 2, longer", b"broker 3")
    with StoreWriter.open(killed, pool_config) as writer:
        writer.append_batch(record(body=b"after"))
    assert bodies_on_disk(killed) == [
        b"ours",
        b"broker 1",
        b"broker 2, longer",
        b"broker 3",
        b"after",
    ]
    check_queues_match_log(killed)
    assert "transient pool" in caplog.text


def test_the_pool_is_replayed_after_a_broker_that_wrote_nothing(
    killed: Path, pool_config: StoreConfig
) -> None:
    run_a_broker(killed)
    with StoreWriter.open(killed, pool_config):
        pass
    assert bodies_on_disk(killed) == [b"ours", b"pool 1", b"pool 2"]
    check_queues_match_log(killed)


def test_the_pool_is_replayed_where_its_commit_was_cut_short(
    killed: Path, pool_config: StoreConfig, tmp_path: Path
) -> None:
    """A part of its bytes is in the file, and the pool does not say so."""
    shutil.copytree(killed, tmp_path / "whole")
    shutil.copytree(tmp_path / "shm", tmp_path / "kept")
    with StoreWriter.open(tmp_path / "whole", pool_config):
        pass
    shutil.copytree(tmp_path / "kept", tmp_path / "shm", dirs_exist_ok=True)
    path = killed / "commitlog" / f"{0:020d}"
    begin = len(path.read_bytes().rstrip(b"\0"))
    part = (tmp_path / "whole" / "commitlog" / path.name).read_bytes()[: begin + 40]
    with path.open("r+b") as file:
        file.write(part)
    with StoreWriter.open(killed, pool_config):
        pass
    assert bodies_on_disk(killed) == [b"ours", b"pool 1", b"pool 2"]
