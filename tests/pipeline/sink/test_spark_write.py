"""Writing with Spark against a real writer: columns to messages, once, and errors that help."""

from __future__ import annotations

from typing import Any

import pytest
from engine_store import records_on_disk
from files_below import files_below
from service_process import WriterProcess

from storage.format.properties import decode_properties


def write(frame: Any, writer: WriterProcess, **options: Any) -> None:
    frame.write.format("penstock").option("endpoint", writer.address).options(**options).mode(
        "append"
    ).save()


def stored(writer: WriterProcess, begin: int = 0) -> list[Any]:
    return [each for each in records_on_disk(writer.store) if each.commit_offset >= begin]


def end_of(writer: WriterProcess) -> int:
    with writer.client() as client:
        return client.writer_status().appended_offset


def test_every_column_becomes_its_part_of_a_message(spark: Any, writer: WriterProcess) -> None:
    begin = end_of(writer)
    frame = spark.createDataFrame(
        [
            (b"\x00body", "key-1", "paid", [("a", b"1"), ("b", b"2")], {"c": "3"}, "rows", 2),
            (b"", None, None, None, None, "other", None),
        ],
        "value binary, key string, tags string, headers array<struct<key:string,value:binary>>,"
        " properties map<string,string>, topic string, partition int",
    ).coalesce(1)
    write(frame, writer)
    first, second = stored(writer, begin)
    properties = decode_properties(first.properties_block)
    unique = properties.pop("UNIQ_KEY")
    properties.pop("__CRC32#")
    assert (first.topic, first.queue_id, first.body) == ("rows", 2, b"\x00body")
    assert properties == {"KEYS": "key-1", "TAGS": "paid", "a": "1", "b": "2", "c": "3"}
    assert len(unique) == 32
    assert (second.topic, second.body) == ("other", b"")
    assert set(decode_properties(second.properties_block)) == {"UNIQ_KEY", "__CRC32#"}


def test_the_option_topic_wins_and_keys_choose_queues(spark: Any, writer: WriterProcess) -> None:
    begin = end_of(writer)
    frame = spark.range(2000).selectExpr(
        "cast(id as string) body", "concat('k', id % 7) key", "'other' topic"
    )
    write(frame, writer, topic="rows")
    found = stored(writer, begin)
    assert len(found) == 2000
    assert {each.topic for each in found} == {"rows"}
    by_key: dict[str, set[int]] = {}
    for each in found:
        key = decode_properties(each.properties_block)["KEYS"]
        by_key.setdefault(key, set()).add(each.queue_id)
    assert len(by_key) == 7
    assert all(len(queues) == 1 for queues in by_key.values())


def test_many_rows_arrive_once_and_in_the_order_of_their_partition(
    spark: Any, writer: WriterProcess
) -> None:
    begin = end_of(writer)
    frame = spark.range(0, 60_000, 1, 3).selectExpr(
        "cast(id as string) value", "cast(id % 3 as int) queueId"
    )
    write(frame, writer, topic="rows")
    found = stored(writer, begin)
    assert sorted(int(each.body) for each in found) == list(range(60_000))
    for queue_id in range(3):
        of_queue = [int(each.body) for each in found if each.queue_id == queue_id]
        assert of_queue == sorted(of_queue)


def test_a_version_is_written_once_however_often_it_is_saved(
    spark: Any, writer: WriterProcess
) -> None:
    begin = end_of(writer)
    frame = spark.range(100).selectExpr("cast(id as string) value")
    for _ in range(3):
        write(frame, writer, topic="rows", txnAppId="job", txnVersion=7)
    write(frame, writer, topic="rows", txnAppId="job", txnVersion=8)
    assert len(stored(writer, begin)) == 200


def test_no_rows_are_a_staged_commit_too(spark: Any, writer: WriterProcess) -> None:
    begin = end_of(writer)
    frame = spark.range(0).selectExpr("cast(id as string) value")
    write(frame, writer, topic="rows")
    write(frame, writer, topic="rows", txnAppId="nothing", txnVersion=0)
    assert end_of(writer) == begin
    with writer.client() as client:
        (app,) = [each for each in client.staged_commits() if each.app_id == "nothing"]
    assert app.last_version == 0


@pytest.mark.parametrize(
    ("options", "expression", "mode", "message"),
    [
        ({"topic": "nowhere"}, "'x' value", "append", "topic 'nowhere' does not exist .* create it"),
        ({"topic": "rows", "endpoint": "127.0.0.1:1", "endpointTimeoutMs": "300"}, "'x' value",
         "append", "option 'endpoint': no writer answers at 127.0.0.1:1"),
        ({"topic": "rows"}, "'x' value", "overwrite", "appended to and never overwritten"),
        ({"topic": "rows"}, "'x' value, 1 other", "append", "column 'other': is not a column"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_runs(
    spark: Any, writer: WriterProcess, options: Any, expression: str, mode: str, message: str
) -> None:
    frame = spark.range(1).selectExpr(*expression.split(", "))
    with pytest.raises(Exception, match=message) as caught:
        frame.write.format("penstock").options(**{"endpoint": writer.address} | options).mode(
            mode
        ).save()
    assert type(caught.value).__name__ == "AnalysisException"


def test_a_row_that_can_be_no_message_fails_the_job_and_nothing_is_stored(
    spark: Any, writer: WriterProcess
) -> None:
    begin = end_of(writer)
    frame = spark.range(5000).selectExpr("if(id = 4321, null, cast(id as string)) value")
    with pytest.raises(Exception, match=r"column 'value': in row \d+ of its task is null"):
        write(frame, writer, topic="rows")
    assert end_of(writer) == begin
    assert not files_below(writer.store / "staged", ".stage")
