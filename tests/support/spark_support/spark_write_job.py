"""A Spark driver of its own, to be killed: ``python spark_write_job.py stream|retry ENDPOINT DIRECTORY``.

``stream`` writes the lines of DIRECTORY/files, a file a batch, and ends with the last one. ``retry``
writes numbers with tasks whose first attempt fails in the middle, after part of it was staged.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROWS = 60_000


def failing_once(batches: Any) -> Any:
    from pyspark import TaskContext

    first = TaskContext.get().attemptNumber() == 0
    for number, batch in enumerate(batches):
        if first and number == 3:
            raise RuntimeError("this attempt fails on purpose")
        yield batch


def stream(spark: Any, endpoint: str, directory: Path) -> None:
    query = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(directory / "files"))
        .writeStream.format("penstock")
        .options(endpoint=endpoint, topic="lines", endpointTimeoutMs="60000")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()


def retry(spark: Any, endpoint: str, _directory: Path) -> None:
    frame = spark.range(0, ROWS, 1, 2).selectExpr("cast(rpad(id, 2000, '.') as binary) value")
    frame = frame.mapInArrow(failing_once, frame.schema)
    frame.write.format("penstock").options(endpoint=endpoint, topic="lines").mode("append").save()


if __name__ == "__main__":
    from pipeline import build_session

    session = build_session(
        "local[2,3]", "a killed driver", {"spark.driver.memory": "1g", "spark.log.level": "OFF"}
    )
    {"stream": stream, "retry": retry}[sys.argv[1]](session, sys.argv[2], Path(sys.argv[3]))
    session.stop()
