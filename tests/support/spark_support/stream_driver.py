"""A Spark driver that streams a store into a ledger and can be killed at a named place.

``stream_driver.py JSON``: ``store``, ``checkpoint``, ``ledger``, ``options`` of the format, and ``die``:
``point`` and after how many batches of this run. Points: ``before`` the batch is read, ``read`` but not
in the ledger, ``ledger`` but not in the checkpoint, and ``offsets`` or ``commits``: as soon as Spark has
written that file of its checkpoint. The ledger has one file a batch, put there whole by renaming; every
attempt at a batch leaves one more, with the rows that it read. It runs until all is read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

POINTS = ("before", "read", "ledger", "offsets", "commits")
SMALL = {
    "spark.log.level": "ERROR",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.pollingDelay": "10ms",
}


def die() -> None:
    """Kill this process, its Java and whatever they started, at once."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def last_number(directory: Path) -> int:
    if not directory.is_dir():
        return -1
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)


def die_at_file(directory: Path, number: int) -> None:
    while last_number(directory) < number:
        time.sleep(0.001)
    die()


def main(given: dict[str, Any]) -> None:
    from pipeline import build_session

    checkpoint, ledger = Path(given["checkpoint"]), Path(given["ledger"])
    ledger.mkdir(exist_ok=True)
    point, batches = given.get("die", ("", 0))
    first = last_number(checkpoint / "offsets") + 1
    if last_number(checkpoint / "commits") + 1 < first:
        first -= 1  # to be run again
    deadly = first + batches

    def reach(name: str, batch: int) -> None:
        if name == point and batch >= deadly:
            die()

    def sink(df: Any, batch: int) -> None:
        reach("before", batch)
        rows = [list(row) for row in df.select("topic", "queueId", "queueOffset").collect()]
        text = json.dumps(sorted(rows))
        (ledger / f"attempt-{batch}-{os.getpid()}.json").write_text(text)
        reach("read", batch)
        temporary = ledger / "new"
        temporary.write_text(text)
        temporary.rename(ledger / f"batch-{batch}.json")
        reach("ledger", batch)

    spark = build_session("local[2]", "driver", SMALL)
    stream = spark.readStream.format("penstock").options(**given["options"]).load(given["store"])
    if point in ("offsets", "commits"):
        threading.Thread(target=die_at_file, args=(checkpoint / point, deadly), daemon=True).start()
    query = (
        stream.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def run_driver(**given: Any) -> int:
    """Run a driver to its end, or death; return its exit code."""
    log = Path(given["ledger"]).with_suffix(".log")
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(given)],
            stdout=out, stderr=out, start_new_session=True,
            cwd=Path(__file__).resolve().parents[3],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        )  # fmt: skip
        return process.wait(120)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
