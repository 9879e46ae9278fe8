"""What goes wrong with Spark's Python data sources, each as a test; and what users get wrong."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from golden import golden_dump, golden_store
from steps_to_try import steps_to_try

from pipeline.source.options import parse_options
from pipeline.source.plan import plan_messages
from storage import Message, MessageStore
from storage.view.pieces import LogPiece
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

BASIC = "basic"


def load(spark: Any, store: Path | str, **options: Any) -> Any:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("penstock").options(**given).load(str(store))


def messages(name: str) -> list[dict[str, Any]]:
    return [line for line in golden_dump(name) if line["type"] == "message"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store of ours: 300 messages in 2 queues, one of them 4 MB, one full of magic bytes."""
    directory = tmp_path / "store"
    with MessageStore.open(directory) as opened:
        opened.create_topic("orders", 2)
        opened.create_topic("empty", 2)
        opened.put_all(
            [
                Message(
                    topic="orders", queue_id=number % 2, body=body_of(number),
                    tag=f"tag{number % 3}", keys=(f"k{number}",), properties={"n": str(number)},
                )
                for number in range(300)
            ]
        )  # fmt: skip
    return directory


def body_of(number: int) -> bytes:
    if number == 150:
        return b"\xab" * (4_000_000)
    if number == 200:
        return bytes.fromhex("daa320a7") * 2000
    return f"body {number}".encode()


def test_filter_then_unfiltered_on_one_dataframe(spark: Any) -> None:
    """The filter of one query must not stay in the next one, nor in a union or a self-join."""
    df = load(spark, golden_store(BASIC))
    total, orders = len(messages(BASIC)), sum(m["topic"] == "orders" for m in messages(BASIC))
    few = df.filter("topic = 'few'")

    assert df.filter("topic = 'orders'").count() == orders
    assert df.count() == total
    assert few.union(df.filter("topic = 'orders'")).select("topic").distinct().count() == 2
    assert few.alias("a").join(df.filter("topic = 'orders'").alias("b"), "topic").count() == 0


def test_an_empty_store_and_an_empty_topic(spark: Any, store: Path, tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "new").close()

    assert load(spark, tmp_path / "new").count() == 0
    assert load(spark, store, subscribe="empty").count() == 0


def test_bodies_with_magic_bytes_and_of_4_mb_come_whole(spark: Any, store: Path) -> None:
    rows = load(spark, store, subscribe="orders", maxPartitionBytes="64k").collect()

    assert {row.properties["n"]: bytes(row.body) for row in rows} == {
        str(number): body_of(number) for number in range(300)
    }


def test_every_split_size_gives_every_record_once(spark: Any, store: Path) -> None:
    """Splits end on a record's edge: none is lost or read twice, whatever the size."""
    every = {(q, n) for q in range(2) for n in range(150)}
    for size in (100, 257, 1000, 4096, 100_000, 1 << 30):
        options = parse_options({"store": str(store), "maxPartitionBytes": str(size)})
        pieces = [piece for task in plan_messages(options) for piece in task]
        assert all(isinstance(piece, LogPiece) for piece in pieces)
        for before, after in pairwise(pieces):
            assert before.end == after.begin
    rows = load(spark, store, maxPartitionBytes=1000).select("queueId", "queueOffset").collect()
    assert sorted(map(tuple, rows)) == sorted(every)


@pytest.mark.parametrize(
    ("options", "named"),
    steps_to_try(
        [
            ({"subscribe": "nope"}, "subscribe"),
            ({"subscribePattern": "no.*"}, "subscribePattern"),
            ({"subscribePattern": "("}, "subscribePattern"),
            ({"assign": '{"orders": [9]}'}, "assign"),
            ({"assign": "orders"}, "assign"),
            ({"subscribe": "orders", "assign": '{"orders": [0]}'}, "assign"),
            ({"subscribe": "orders", "startingOffsets": "latest"}, "startingOffsets"),
            ({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 3}}'}, "startingOffsets"),
            (
                {"assign": '{"few": [0]}', "startingOffsets": '{"few": {"0": 999}}'},
                "startingOffsets",
            ),
            ({"assign": '{"few": [0]}', "endingOffsets": '{"few": {"0": -2}}'}, "endingOffsets"),
            ({"subscribe": "few", "startingTimestamp": "99999999999999"}, "startingTimestamp"),
            ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
            ({"subscrbe": "orders"}, "did you mean 'subscribe'"),
            ({"kafka.bootstrap.servers": "x"}, "kafka.bootstrap.servers"),
            ({"mode": "LENIENT"}, "mode"),
            ({"table": "message"}, "table"),
            ({"table": "queues", "subscribe": "orders"}, "subscribe"),
            ({"maxPartitionBytes": "many"}, "maxPartitionBytes"),
            ({"maxOffsetsPerTrigger": "10"}, "maxOffsetsPerTrigger"),
            ({"endpoint": "localhost:5802"}, "endpoint"),
        ],
        4,
    ),
    ids=lambda value: str(value)[:60],
)
def test_wrong_options_are_refused_when_planned(
    spark: Any, options: dict[str, str], named: str
) -> None:
    """An AnalysisException that names the option."""
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=named):
        load(spark, golden_store(BASIC), **options).count()


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("topic string, colour string", "no column is called 'colour'"),
        ("queueId bigint", "column 'queueId' is int"),
        ("topic string not null", "may be null"),
    ],
)
def test_an_unknown_column_in_a_users_schema(spark: Any, schema: str, problem: str) -> None:
    from pyspark.errors import AnalysisException

    reader = spark.read.format("penstock").schema(schema)
    with pytest.raises(AnalysisException, match=problem):
        reader.load(str(golden_store(BASIC))).count()


def test_offsets_by_queue_and_by_time(spark: Any, store: Path) -> None:
    """Ends are exclusive, -2 and -1 are the ends of a queue, and times beat offsets."""
    start = json.dumps({"orders": {"0": 10, "1": -2}})
    end = json.dumps({"orders": {"0": 20, "1": 5}})
    df = load(spark, store, subscribe="orders", startingOffsets=start, endingOffsets=end)
    got = sorted((row.queueId, row.queueOffset) for row in df.collect())
    assert got == [(0, n) for n in range(10, 20)] + [(1, n) for n in range(5)]

    lines = sorted(messages(BASIC), key=lambda line: line["storeTimestamp"])
    middle = lines[len(lines) // 2]["storeTimestamp"]
    df = load(
        spark, golden_store(BASIC), subscribePattern=".*", startingTimestamp=middle,
        startingOffsets="earliest", startingOffsetsByTimestampStrategy="latest",
    )  # fmt: skip
    assert df.count() == sum(line["storeTimestamp"] >= middle for line in lines)


def break_one(directory: Path) -> int:
    """Flip a bit in one body; return the record's commit offset."""
    plan = StorePlan(StoreView.open(directory))
    offset, _ = plan.queues["orders", 1].place(7)
    file = plan.store.log.entry_of(offset)
    assert file is not None
    with file.path.open("r+b") as log:
        log.seek(offset - file.start_offset + 88)
        byte = log.read(1)[0]
        log.seek(offset - file.start_offset + 88)
        log.write(bytes([byte ^ 1]))
    return offset


@pytest.mark.parametrize("subscribed", [False, True])
def test_a_damaged_record_by_mode(spark: Any, store: Path, subscribed: bool) -> None:
    """A row of nulls with the reason, no row, or an error with the place."""
    offset = break_one(store)
    chosen: dict[str, str] = {"subscribe": "orders"} if subscribed else {}
    permissive = load(spark, store, **chosen)
    bad = permissive.filter("_corrupt is not null").collect()
    assert permissive.count() == 300
    assert [(row.physicalOffset, row.body) for row in bad] == [(offset, None)]
    assert "CRC" in bad[0]._corrupt
    if subscribed:
        assert (bad[0].topic, bad[0].queueId, bad[0].queueOffset) == ("orders", 1, 7)
    assert load(spark, store, mode="DROPMALFORMED", **chosen).count() == 299
    with pytest.raises(Exception, match=f"damaged at commit offset {offset}"):
        load(spark, store, mode="failfast", **chosen).collect()


def test_a_live_store_is_read_up_to_what_its_writer_confirmed(spark: Any, tmp_path: Path) -> None:
    """Rows appended after the confirmed offset do not show, and each plan sees what is new."""
    with MessageStore.open(tmp_path / "s") as opened:
        opened.create_topic("t", 2)
        for count in (1, 50, 200):
            opened.put_all([Message(topic="t", body=b"x" * 10) for _ in range(count)])
            seen = StoreView.open(tmp_path / "s").bounds.end_offset
            assert (
                load(spark, tmp_path / "s").count()
                == load(spark, tmp_path / "s", subscribe="t").count()
            )
            assert seen > 0
        assert load(spark, tmp_path / "s").count() == 251
        log = next((tmp_path / "s" / "commitlog").iterdir())
        with log.open("r+b") as file:  # what a writer is about to do: half a record behind the end
            file.seek(seen)
            file.write(b"\x00\x00\x01\x00\xda\xa3\x20\xa7" + b"half")
        assert load(spark, tmp_path / "s").filter("_corrupt is not null").count() == 0


def test_other_tables_count_what_the_dump_counts(spark: Any) -> None:
    lines = golden_dump(BASIC)
    queues = {
        (row.topic, row.queueId): (row.minOffset, row.maxOffset)
        for row in load(spark, golden_store(BASIC), table="queues").collect()
    }
    wanted = [line for line in lines if line["type"] == "queue" and line["maxOffset"]]
    assert queues == {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in wanted}
    entries = load(spark, golden_store(BASIC), table="index").count()
    assert entries == sum(line["indexCount"] - 1 for line in lines if line["type"] == "index")
    units = load(spark, golden_store(BASIC), table="consumequeue").count()
    assert units == len(messages(BASIC))
