"""A write that is given up when one of its tasks had staged and ended: nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_store import records_on_disk
from files_below import files_below
from writer_process import WriterProcess

ROWS = 300
APP = "given up"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[WriterProcess]:
    with WriterProcess(tmp_path / "store") as process:
        with process.client() as client:
            client.create_topic("rows", queues=2)
        yield process


def stages(writer: WriterProcess) -> list[Path]:
    return files_below(writer.store / "staged", ".stage")


def bodies(writer: WriterProcess) -> list[int]:
    return sorted(int(each.body) for each in records_on_disk(writer.store) if each.topic == "rows")


def failing_behind_another(writer: WriterProcess, directory: Path) -> Callable[[Any], Any]:
    """Make partition 1 fail when 0 has ended, while there is a file ``fail``.

    There are two slots: that partition 2 begins says that 0 has ended, as 1 has not. Partition 1
    leaves the names of the stages that it saw in a file ``seen``, and 2 has no rows to stage.
    """
    store = str(writer.store)

    def run(batches: Any) -> Any:
        import os
        import time
        from pathlib import Path

        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        if number == 0 or not (directory / "fail").exists():
            yield from batches
        elif number == 2:
            (directory / "third").touch()
        else:
            until = time.monotonic() + 60
            while not (directory / "third").exists() and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(1)  # until the driver knows of the end of partition 0
            walk = os.walk(Path(store, "staged"))  # a worker has no module of the tests'
            seen = [name for _, _, names in walk for name in names if name.endswith(".stage")]
            (directory / "seen").write_text("\n".join(seen))
            raise RuntimeError("this task fails on purpose")

    return run


def write_batch(spark: Any, writer: WriterProcess, directory: Path) -> None:
    frame = spark.range(0, ROWS, 1, 3).selectExpr("cast(id as string) value")
    frame = frame.mapInArrow(failing_behind_another(writer, directory), frame.schema)
    frame.write.format("penstock").options(endpoint=writer.address, topic="rows").options(
        txnAppId=APP, txnVersion=0
    ).mode("append").save()


def write_stream(spark: Any, writer: WriterProcess, directory: Path) -> None:
    files = directory / "files"
    files.mkdir(exist_ok=True)
    (files / "rows.txt").write_text("".join(f"{number}\n" for number in range(ROWS)))
    frame = spark.readStream.text(str(files)).repartition(3)
    frame = frame.mapInArrow(failing_behind_another(writer, directory), frame.schema)
    query = (
        frame.writeStream.format("penstock")
        .options(endpoint=writer.address, topic="rows", txnAppId=APP)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)


@pytest.mark.parametrize("write", [write_batch, pytest.param(write_stream, marks=pytest.mark.slow)])
def test_nothing_stays_of_a_task_that_ended_before_another_failed(
    spark: Any, writer: WriterProcess, tmp_path: Path, write: Callable[..., None]
) -> None:
    (tmp_path / "fail").touch()
    with pytest.raises(Exception, match="this task fails on purpose"):
        write(spark, writer, tmp_path)

    assert (tmp_path / "seen").read_text().endswith(".stage")
    assert not stages(writer)
    assert not bodies(writer)
    with writer.client() as client:
        assert not [each for app in client.staged_commits() for each in app.open]

    (tmp_path / "fail").unlink()
    for _ in range(2):
        write(spark, writer, tmp_path)
        assert bodies(writer) == list(range(ROWS))
        assert not stages(writer)
    with writer.client() as client:
        (app,) = client.staged_commits()
    assert (app.app_id, app.last_version, app.open) == (APP, 0, ())
