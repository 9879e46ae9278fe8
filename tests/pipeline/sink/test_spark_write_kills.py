"""Spark's own failures: tasks that fail half-way, drivers and writers killed; no row lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from engine_store import records_on_disk
from files_below import files_below
from service_process import WriterProcess
from spark_write_job import ROWS

SUPPORT = Path(__file__).parents[2] / "support" / "spark_support"
pytestmark = [pytest.mark.spark, pytest.mark.slow]
DEATHS = int(os.environ.get("KILLS", "2"))  # of drivers; every second time the writer's too
BIG_LOG = ("--commit-log-file-size", "64MiB")


def start_job(kind: str, writer: WriterProcess, directory: Path) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[2])])
    }
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "spark_write_job.py"), kind, writer.address, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=environment,
    )


def test_a_task_that_fails_half_way_leaves_nothing_of_its_first_try(tmp_path: Path) -> None:
    with WriterProcess(tmp_path / "store", *BIG_LOG) as writer:
        with writer.client() as client:
            client.create_topic("lines", queues=2)
        job = start_job("retry", writer, tmp_path)
        assert job.wait(150) == 0
        numbers = sorted(int(each.body.rstrip(b".")) for each in records_on_disk(writer.store))
        assert numbers == list(range(ROWS))
        assert not files_below(writer.store / "staged", ".stage")


@pytest.mark.timeout(300 + 60 * DEATHS)
def test_a_stream_whose_driver_and_writer_are_killed(tmp_path: Path) -> None:
    dice = random.Random(20)
    files, rows = 14, 400
    (tmp_path / "files").mkdir()
    for number in range(files):
        text = "".join(f"{number} {row}\n" for row in range(rows))
        (tmp_path / "files" / f"{number}.txt").write_text(text)
    deaths = 0
    with WriterProcess(tmp_path / "store", *BIG_LOG) as writer:
        with writer.client() as client:
            client.create_topic("lines", queues=2)
        while True:
            job = start_job("stream", writer, tmp_path)
            assert job.stdout is not None
            assert job.stdout.readline() == "started\n"
            try:
                if deaths < DEATHS:
                    assert job.wait(dice.uniform(0.5, 3.0)) == 0
                else:
                    assert job.wait(200) == 0
                break
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait(20)
                deaths += 1
                if deaths % 2:
                    writer.kill()
                    writer.start()
        writer.stop()
    assert deaths
    found = sorted(each.body.decode() for each in records_on_disk(tmp_path / "store"))
    assert found == sorted(f"{number} {row}" for number in range(files) for row in range(rows))


@pytest.mark.timeout(300)
def test_a_writer_killed_again_and_again_under_a_batch(spark: Any, tmp_path: Path) -> None:
    """Tasks stage again what the writer lost, the commit is repeated until it is answered."""
    with WriterProcess(tmp_path / "store", *BIG_LOG) as writer:
        with writer.client() as client:
            client.create_topic("lines", queues=2)
        ended = threading.Event()
        kills = []

        def kill() -> None:
            dice = random.Random(21)
            while not ended.wait(dice.uniform(0.3, 2.5)) and len(kills) < 6:
                writer.kill()
                kills.append(time.monotonic())
                writer.start()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            frame = spark.range(0, 80_000, 1, 4).selectExpr("rpad(id, 2000, '.') value")
            frame.write.format("penstock").options(
                endpoint=writer.address, topic="lines", endpointTimeoutMs=60_000
            ).mode("append").save()
        finally:
            ended.set()
            killer.join(60)
        assert kills
        writer.stop()
    numbers = sorted(int(each.body.rstrip(b".")) for each in records_on_disk(tmp_path / "store"))
    assert numbers == list(range(80_000))
