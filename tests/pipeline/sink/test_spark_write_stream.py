"""Streams into a store: batches stored once, also when Spark runs one of them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_store import records_on_disk
from service_process import WriterProcess


def add_file(directory: Path, number: int, rows: int = 50) -> None:
    directory.mkdir(exist_ok=True)
    text = "".join(f"{number} {row}\n" for row in range(rows))
    (directory / f"{number}.txt").write_text(text)


def run(spark: Any, writer: WriterProcess, source: Path, topic: str, **options: str) -> Any:
    query = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(source))
        .writeStream.format("penstock")
        .option("endpoint", writer.address)
        .option("topic", topic)
        .option("checkpointLocation", str(source.parent / f"checkpoint-{topic}"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    return query


def bodies(writer: WriterProcess, topic: str) -> list[str]:
    return sorted(
        each.body.decode() for each in records_on_disk(writer.store) if each.topic == topic
    )


def lines(numbers: range, rows: int = 50) -> list[str]:
    return sorted(f"{number} {row}" for number in numbers for row in range(rows))


def test_a_stream_goes_on_where_it_was(spark: Any, writer: WriterProcess, tmp_path: Path) -> None:
    source = tmp_path / "files"
    for number in range(3):
        add_file(source, number)
    first = run(spark, writer, source, "lines")
    assert bodies(writer, "lines") == lines(range(3))
    add_file(source, 3)
    second = run(spark, writer, source, "lines")
    assert first.id == second.id
    assert bodies(writer, "lines") == lines(range(4))
    with writer.client() as client:
        (app,) = [each for each in client.staged_commits() if each.app_id == str(first.id)]
    assert app.last_version == 3


def test_a_batch_that_spark_runs_again_is_not_stored_again(
    spark: Any, writer: WriterProcess, tmp_path: Path
) -> None:
    """As after a driver that died between the sink's commit and its own note of it."""
    source = tmp_path / "files"
    for number in range(2):
        add_file(source, number)
    run(spark, writer, source, "again")
    commits = tmp_path / "checkpoint-again" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)
    add_file(source, 2)
    run(spark, writer, source, "again")
    assert (commits / "1").exists()
    assert bodies(writer, "again") == lines(range(3))


def test_a_name_of_ones_own_outlives_the_checkpoint(
    spark: Any, writer: WriterProcess, tmp_path: Path
) -> None:
    source = tmp_path / "files"
    add_file(source, 0)
    run(spark, writer, source, "named", txnAppId="my stream")
    (tmp_path / "checkpoint-named").rename(tmp_path / "lost")
    run(spark, writer, source, "named", txnAppId="my stream")
    assert bodies(writer, "named") == lines(range(1))


def test_what_a_stream_cannot_do_is_refused(
    spark: Any, writer: WriterProcess, tmp_path: Path
) -> None:
    add_file(tmp_path / "files", 0)
    with pytest.raises(Exception, match=r"txnVersion.*a stream's batches have numbers"):
        run(spark, writer, tmp_path / "files", "lines", txnVersion="1")
