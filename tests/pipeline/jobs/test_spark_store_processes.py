"""Jobs that write stores with the driver killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from new_stores import PIECE, assert_in_order
from store_workload import SMALL, run_workload

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RUN = """
import sys
from pipeline import build_session, merge
master, target, *stores = sys.argv[1:]
spark = build_session(master, "penstock tests", {"spark.log.level": "ERROR", "spark.driver.memory": "1g",
                                                 "spark.executor.memory": "768m"})
merge(spark, stores, target, piece_bytes=1 << 14)
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores that took turns."""
    root = tmp_path_factory.mktemp("pair")
    for turn in range(2):
        for number, name in enumerate(("first", "second")):
            run_workload(root / name, config=SMALL, rounds=40, seed=10 * turn + number)
    return root / "first", root / "second"


def start(master: str, target: Path, stores: tuple[Path, Path]) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, master, target, *stores],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@pytest.mark.timeout(240)
def test_a_killed_job_leaves_no_store_under_its_name(
    spark: Any, tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    """Killed as the log, the queues or the configuration appear; the next run is as if it had not been."""
    from pipeline import merge

    partial = tmp_path / "new.partial"
    killed_early = 0
    for seen in ("commitlog", ".made/new.partial", "config"):
        process = start("local[1]", tmp_path / "new", pair)
        looked = threading.Event()
        while process.poll() is None and not (partial / seen).exists():
            looked.wait(0.002)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if (tmp_path / "new").exists():  # it was faster than the kill: then it is whole
            assert_in_order(tmp_path / "new")
            shutil.rmtree(tmp_path / "new")
        else:
            assert partial.exists()
            killed_early += 1
    assert killed_early
    merge(spark, pair, tmp_path / "new", piece_bytes=PIECE)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert_in_order(tmp_path / "new")
