"""Reads and jobs on a cluster of two executors, each a process of its own, of which one is killed.

``python spark_on_a_cluster.py BIG DIRECTORY STORE...``: prints one JSON line of what it found. A child
process of the tests, which have a session of their own already.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline import audit, build_session, rebuild


def descendants(root: int) -> Iterator[tuple[int, str]]:
    """Yield process id and command line of everything that a process started."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = parent, (entry / "cmdline").read_text()
            except OSError:
                continue
    wanted = {root}
    while more := {pid for pid, (parent, _) in found.items() if parent in wanted} - wanted:
        wanted |= more
    yield from ((pid, found[pid][1]) for pid in wanted if pid in found)


def executors() -> list[int]:
    """Return the process ids of the executors."""
    name = "CoarseGrainedExecutorBackend"
    return [
        pid
        for pid, command in descendants(os.getpid())
        if name in command and "java" in command.split("\0")[0]
    ]


def kill_one_in_the_middle(spark: Any, killed: list[int]) -> None:
    """Wait until a few tasks of a stage are done and others are not, then kill an executor."""
    tracker = spark.sparkContext.statusTracker()
    until = time.monotonic() + 90
    while time.monotonic() < until:
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            if stage and 4 <= stage.numCompletedTasks < stage.numTasks - 8:
                victim = executors()[0]
                os.kill(victim, signal.SIGKILL)
                killed.append(stage.numCompletedTasks)
                return
        time.sleep(0.01)


def main(big: str, directory: str, stores: list[str]) -> None:
    """Read, kill, audit, rebuild."""
    spark = build_session(
        "local-cluster[2,1,1024]",
        "cluster",
        {"spark.log.level": "ERROR", "spark.driver.memory": "1g"},
    )
    found: dict[str, Any] = {"counts": {}, "findings": {}, "rebuilt": {}}
    for store in stores:
        rows = spark.read.format("penstock").load(store).select("physicalOffset", "body").collect()
        found["counts"][store] = sorted(row.physicalOffset for row in rows)
    found["executors"] = len(executors())

    killed: list[int] = []
    killer = threading.Thread(target=kill_one_in_the_middle, args=(spark, killed), daemon=True)
    killer.start()
    df = spark.read.format("penstock").option("maxPartitionBytes", "1m").load(big)
    rows = df.selectExpr("physicalOffset", "sha1(body) AS digest").collect()
    killer.join()
    found["killed_after_tasks"] = killed
    digest = hashlib.sha256()
    for offset, text in sorted((row.physicalOffset, row.digest) for row in rows):
        digest.update(f"{offset} {text}\n".encode())
    found["big"] = [len(rows), digest.hexdigest()]

    for store in stores:
        found["findings"][store] = len(audit(spark, store).findings)
        target = Path(directory, Path(store).name)
        rebuild(spark, store, target, what="queues")
        found["rebuilt"][store] = {
            str(path.relative_to(target / "consumequeue")): hashlib.sha256(
                path.read_bytes()
            ).hexdigest()
            for path in target.rglob("*")
            if path.is_file()
        }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
