"""A store read through its reader service is what a read of its files gives, whatever happens to it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import spark_reads
from engine_store import small_config
from flips import flip_unit
from golden import golden_copy
from real_processes import one_service
from service_process import ReaderProcess
from spark_reads import schema_of
from steps_to_try import cases_to_try
from three_services import three_services

from penstock.v1 import common_pb2, writer_pb2
from pipeline.errors import DataLost, PipelineError, ReaderUnavailable
from pipeline.source.options import parse_options
from pipeline.source.plan import plan_messages
from pipeline.source.read import Reader
from pipeline.source.source import wanted_columns
from storage import Message, MessageStore

KEYS = ("topic", "queueId", "queueOffset", "physicalOffset")
FILES = {"commit_log_file_size": 8 << 20, "consume_queue_file_size": 20 * 5_000}


@contextmanager
def reader_of(store: Path) -> Iterator[str]:
    """A reader process; gives its address."""
    with one_service("reader", store) as running:
        yield running.wait_serving("reader")[0]


def read(**given: str) -> pa.Table:
    """All of a read in this process, in the order of queues."""
    return spark_reads.read(**given).sort_by([(key, "ascending") for key in KEYS])


def load(spark: Any, address: str, **options: Any) -> Any:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("penstock").option("endpoint", address).options(**given).load()


def put(store: MessageStore, topic: str, queue_id: int, count: int, size: int = 100) -> None:
    for begin in range(0, count, 200):
        store.put_all(
            [
                Message(
                    topic=topic, queue_id=queue_id, body=b"%d " % number * (size // 4),
                    tag=f"tag{number % 3}", keys=(f"k{number}",), properties={"n": str(number)},
                )
                for number in range(begin, min(count, begin + 200))
            ]
        )  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ours of about 24 MiB: topic t with 3 queues, one of 1 KiB messages; u with one."""
    directory = tmp_path_factory.mktemp("remote") / "store"
    with MessageStore.open(directory, small_config(**FILES)) as store:
        store.create_topic("t", 3)
        store.create_topic("u", 1)
        put(store, "t", 0, 18_000, 1000)
        put(store, "t", 2, 300)
        put(store, "u", 0, 200)
    return directory


@pytest.fixture(scope="module")
def address(filled: Path) -> Iterator[str]:
    with reader_of(filled) as address:
        yield address


@pytest.mark.parametrize(
    "name", cases_to_try(["features", "cleaned", "basic", "lmq", "propcrc", "killed-recovered"], 2)
)
def test_every_record_of_a_brokers_store_is_read_alike(tmp_path: Path, name: str) -> None:
    """Compressed bodies, hosts of IPv6, long topics, light queues: every field of every record."""
    store = golden_copy(name, tmp_path)
    with reader_of(store) as address:
        there = read(endpoint=address)

        assert there.num_rows > 0
        assert there.equals(read(store=str(store), subscribePattern=".*"))
        assert there.equals(read(endpoint=address, subscribePattern=".*"))


def test_spark_reads_what_it_reads_of_the_files(spark: Any, filled: Path, address: str) -> None:
    """In workers of their own, all columns."""
    remote = load(spark, address)
    local = spark.read.format("penstock").option("subscribe", "t,u").load(str(filled))

    assert remote.columns == local.columns
    assert remote.count() == 18_500
    columns = [name for name in remote.columns if name != "properties"]
    assert remote.select(columns).exceptAll(local.select(columns)).count() == 0


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "u"},
        {"assign": '{"t": [2], "u": [0]}'},
        {"subscribe": "t", "startingOffsets": '{"t": {"0": 17990, "2": -2}}'},
        {"subscribe": "u", "endingOffsets": '{"u": {"0": 7}}'},
        {"subscribe": "t,u", "tags": "tag1 || tag2", "maxPartitionBytes": "1m"},
        {"subscribe": "u", "tags": "none"},
        {"subscribe": "t", "minPartitions": "7", "decompress": "false"},
    ],
    ids=str,
)
def test_options_mean_what_they_mean_for_files(
    filled: Path, address: str, given: dict[str, str]
) -> None:
    assert read(endpoint=address, **given).equals(read(store=str(filled), **given))


def test_tasks_are_cut_by_bytes_and_by_number(address: str) -> None:
    whole = plan_messages(parse_options({"endpoint": address}))
    small = plan_messages(parse_options({"endpoint": address, "maxPartitionBytes": "2m"}))
    many = plan_messages(parse_options({"endpoint": address, "minPartitions": "20"}))

    assert len(whole) == 1 and 8 <= len(small) <= 16 and len(many) >= 20
    for tasks in (whole, small, many):
        offsets = {
            (p.topic, p.queue_id, n) for t in tasks for p in t for n in range(p.begin, p.end)
        }
        assert len(offsets) == sum(p.end - p.begin for t in tasks for p in t) == 18_500


def test_the_table_of_queues_is_that_of_the_files(spark: Any, filled: Path, address: str) -> None:
    local = spark.read.format("penstock").option("table", "queues").load(str(filled))
    remote = load(spark, address, table="queues")

    assert remote.columns == local.columns
    assert remote.collect() == local.collect() != []


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_damaged_records_are_reported_alike(tmp_path: Path, mode: str) -> None:
    """The reader finds the damage; the mode decides what a row of it is."""
    with MessageStore.open(tmp_path / "s", small_config(**FILES)) as store:
        store.create_topic("t", 1)
        put(store, "t", 0, 100)
    damage(tmp_path / "s", read(store=str(tmp_path / "s")), 40)
    with reader_of(tmp_path / "s") as address:
        there = read(endpoint=address, mode=mode)

        assert there.equals(read(store=str(tmp_path / "s"), subscribe="t", mode=mode))
        assert there.num_rows == (100 if mode == "PERMISSIVE" else 99)
        assert there["_corrupt"].null_count == 99
        with pytest.raises(PipelineError, match="damaged at commit offset"):
            read(endpoint=address, mode="FAILFAST")


def test_a_queue_that_the_writer_rebuilds_is_waited_for(tmp_path: Path) -> None:
    """The reader refuses the unit until then; the read goes on with it and has every row."""
    with three_services(tmp_path / "s") as services:
        services.writer.CreateTopic(writer_pb2.CreateTopicRequest(name="t", queue_count=1))
        messages = [common_pb2.Message(topic="t", body=b"%d" % n, queue_id=0) for n in range(60)]
        services.writer.Produce(writer_pb2.ProduceRequest(messages=messages), timeout=20)
        address = services.running.reader
        assert read(endpoint=address).num_rows == 60
        path, before = flip_unit(services.store, "t", 25)

        assert read(endpoint=address)["queueOffset"].to_pylist() == list(range(60))
        assert path.read_bytes() == before


def damage(directory: Path, rows: pa.Table, queue_offset: int) -> None:
    row = rows.slice(queue_offset, 1).to_pylist()[0]
    with next((directory / "commitlog").iterdir()).open("r+b") as file:
        file.seek(row["physicalOffset"] + 100)
        file.write(b"\xff\xfe\xfd")


def test_a_reader_that_goes_in_the_middle_loses_and_doubles_nothing(filled: Path) -> None:
    """Killed, and then stopped: each answer that came is kept; the next call asks for what follows it."""
    ways = {1: signal.SIGKILL, 3: signal.SIGTERM}
    with ReaderProcess(filled) as reader:
        options = parse_options({"endpoint": reader.address, "subscribe": "t"})
        columns = wanted_columns(options, schema_of("queueId", "queueOffset"))
        (pieces,) = plan_messages(options)
        rows: list[tuple[int, int]] = []
        restart = threading.Timer(0.4, reader.start)
        for count, batch in enumerate(Reader(options, columns).read(pieces)):
            if count == 3:
                restart.join()  # one reader at a time
            if count in ways:
                reader.kill(ways[count])
                restart = threading.Timer(0.4, reader.start)
                restart.start()
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        restart.join()

    assert sorted(rows) == [(0, n) for n in range(18_000)] + [(2, n) for n in range(300)]


def test_a_reader_that_stays_away_is_named(filled: Path) -> None:
    with ReaderProcess(filled) as reader:
        options = parse_options({"endpoint": reader.address, "endpointTimeoutMs": "500"})
        columns = wanted_columns(options, schema_of("topic"))
        (pieces,) = plan_messages(options)
        reader.kill()
        began = time.monotonic()
        with pytest.raises(ReaderUnavailable, match=reader.address):
            list(Reader(options, columns).read(pieces))

    assert time.monotonic() - began < 5


def test_what_a_reader_has_no_more_is_lost_data(tmp_path: Path) -> None:
    """Removed between plan and read: an error, or the rest with failOnDataLoss=false."""
    with MessageStore.open(tmp_path / "s", small_config()) as store:
        store.create_topic("t", 1)
        put(store, "t", 0, 1000)
    with ReaderProcess(tmp_path / "s") as reader:
        options = {"endpoint": reader.address, "endpointTimeoutMs": "500"}
        (pieces,) = plan_messages(parse_options(options))
        columns = wanted_columns(parse_options(options), schema_of("queueOffset"))
        reader.kill()
        first = min((tmp_path / "s" / "commitlog").iterdir())
        first.unlink()
        reader.start()
        with pytest.raises(DataLost, match="failOnDataLoss"):
            list(Reader(parse_options(options), columns).read(pieces))
        going_on = parse_options({**options, "failOnDataLoss": "false"})
        rows = [n for batch in Reader(going_on, columns).read(pieces) for n in batch[0].to_pylist()]

    assert rows == list(range(1000 - len(rows), 1000)) and 0 < len(rows) < 1000


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"subscribe": "nothing"}, "option 'subscribe'.*no topic is named 'nothing'; topics: t, u"),
        ({"subscribePattern": "x.*"}, "option 'subscribePattern'.*no topic matches"),
        ({"assign": '{"t": [9]}'}, "option 'assign'.*no queue 9"),
        ({"subscribe": "u", "startingOffsets": '{"u": {"0": 201}}'}, "ends at offset 200"),
        ({"subscribe": "u", "startingTimestamp": "99999999999999"}, "nothing stored at or after"),
        ({"store": "/tmp/x"}, "option 'endpoint': 'store' is given, too"),
        ({"table": "index"}, "option 'table': a reader service gives messages and queues"),
        ({"storageOptions": "{}"}, "option 'endpoint': 'storageOptions' is given, too"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named_when_planned(
    address: str, given: dict[str, str], problem: str
) -> None:
    with pytest.raises(PipelineError, match=problem):
        plan_messages(parse_options({"endpoint": address, **given}))


def test_spark_shows_a_wrong_endpoint_soon(spark: Any) -> None:
    began = time.monotonic()
    with pytest.raises(Exception, match=r"no reader service answers at 127\.0\.0\.1:1 "):
        load(spark, "127.0.0.1:1").count()
    assert time.monotonic() - began < 15
    with pytest.raises(Exception, match="option 'endpoint': 'somewhere' is not HOST:PORT"):
        load(spark, "somewhere").count()


def test_another_service_is_not_a_reader(filled: Path) -> None:
    with one_service("writer", filled) as running:
        address = running.wait_serving("writer")[0]
        with pytest.raises(ReaderUnavailable, match="is not a reader service"):
            plan_messages(parse_options({"endpoint": address}))
