"""A Spark driver whose tasks of partition 0 stop at a gate after their last row, when most are staged.

``python spark_speculation_job.py MASTER ENDPOINT DIRECTORY``: each line of input is the name of a write,
which goes to the topic of that name, and then options of the format, as JSON; when it has ended, a line
``ended`` or ``failed`` is printed. Attempt A of partition 0 waits for the file DIRECTORY/NAME/go-A: to
end, or to fail if ``fail`` is in it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTITIONS = 4
BATCH_ROWS = 1_000
ROWS = 7 * BATCH_ROWS  # of a partition
FIRST_PART_ROWS = 5 * BATCH_ROWS  # of partition 0; what follows pushes them through Spark's buffers
BODY_SIZE = 4_000  # in partition 0
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # starts sooner, and here that is all
CONFIG = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.task.maxFailures": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "768m",
    "spark.driver.memory": "768m",
    "spark.log.level": "OFF",
}


def gated(directory: Path) -> Callable[[Any], Any]:
    def run(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.partitionId() != 0:
            return
        attempt = context.attemptNumber()
        (directory / f"read-{attempt}-{context.taskAttemptId()}").touch()
        until = time.monotonic() + 120
        while not (gate := directory / f"go-{attempt}").exists():
            if time.monotonic() > until:
                raise TimeoutError("nobody opened the gate")
            time.sleep(0.01)
        if gate.read_text() == "fail":
            raise RuntimeError("this attempt fails on purpose")

    return run


def write(spark: Any, endpoint: str, directory: Path, options: dict[str, str]) -> None:
    size = f"if(id < {ROWS}, {BODY_SIZE}, 10)"
    frame = spark.range(0, PARTITIONS * ROWS, 1, PARTITIONS).selectExpr(
        f"cast(rpad(id, {size}, '.') as binary) value"
    )
    frame = frame.mapInArrow(gated(directory), frame.schema)
    frame.write.format("penstock").options(endpoint=endpoint, topic=directory.name, **options).mode(
        "append"
    ).save()


if __name__ == "__main__":
    from pipeline import build_session

    session = build_session(sys.argv[1], "speculation", CONFIG)
    for line in sys.stdin:
        name, _, given = line.partition(" ")
        try:
            write(session, sys.argv[2], Path(sys.argv[3], name), json.loads(given))
        except Exception as error:  # noqa: BLE001  told to whoever started this
            print(error, file=sys.stderr)
            print("failed", flush=True)
        else:
            print("ended", flush=True)
    session.stop()
