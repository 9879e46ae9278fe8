"""The stream reader driven as Spark drives it, without Spark: offsets, caps, new queues, lost ranges."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_store import small_config
from golden import CLEAN, KILLED, golden_copy, golden_store
from pyspark.sql.streaming.datasource import ReadAllAvailable
from spark_reads import put, queue_rows, read, schema_of
from steps_to_try import cases_to_try, steps_to_try
from stream_query import Query, Row, through_json

from pipeline.errors import DataLost, InvalidOption, NotAStore, WrongCheckpoint
from pipeline.source.schemas import MESSAGE_COLUMNS
from pipeline.source.stream.stream import StreamReader, make_stream_reader
from storage import MessageStore
from storage.view.store_view import StoreView

SCHEMA = schema_of("topic", "queueId", "queueOffset")
TICK_S = 0.05  # of a directory's time in memory: a look within one sees no change


def reader_of(store: Path | str, **options: Any) -> StreamReader:
    given = {name: str(value) for name, value in options.items()}
    return make_stream_reader({"store": str(store), **given}, SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


# ---- starts


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t"}])
def test_latest_is_decided_once(live: MessageStore, path: Path, chosen: dict[str, str]) -> None:
    """What comes between planning batch 0 and running it, or running it again, is in batch 1."""
    put(live, "t", 0, 20)
    first = reader_of(path, **chosen)
    initial = first.initialOffset()
    end = through_json(first.latestOffset(initial, first.getDefaultReadLimit()))
    put(live, "t", 0, 5)
    assert first.initialOffset() == initial

    again = reader_of(path, **chosen)  # killed before batch 0 was committed
    assert list(again.partitions(again.initialOffset(), end)) == []
    put(live, "t", 0, 5)
    assert Query(again, end).step() == queue_rows("t", 0, 20, 30)


@pytest.mark.parametrize("options", [{"startingOffsets": "earliest"}, {"startingTimestamp": 1}])
def test_a_batch_run_again_reads_the_same(
    live: MessageStore, path: Path, options: dict[str, Any]
) -> None:
    """Also the first, though what 'earliest' and a time mean has changed by then."""
    put(live, "t", 0, 30)
    first = reader_of(path, subscribe="t", maxOffsetsPerTrigger=20, **options)
    query = Query(first)
    assert query.step() == queue_rows("t", 0, 0, 20)
    end = query.start
    assert end is not None
    put(live, "t", 1, 10)
    again = reader_of(path, subscribe="t", startingTimestamp=99_999_999_999_999)
    assert Query(again).run(again.initialOffset(), end) == queue_rows("t", 0, 0, 20)
    rows = Query(again, end).drain()
    assert sorted(rows) == queue_rows("t", 0, 20, 30) + queue_rows("t", 1, 0, 10)


def test_starts_by_offset_for_each_queue(live: MessageStore, path: Path) -> None:
    for queue_id in range(3):
        put(live, "t", queue_id, 10)
    offsets = json.dumps({"t": {"0": 4, "1": -1, "2": -2}})
    query = Query(reader_of(path, subscribe="t", startingOffsets=offsets))
    assert sorted(query.drain()) == queue_rows("t", 0, 4, 10) + queue_rows("t", 2, 0, 10)
    for wrong, problem in (
        ({"t": {"0": 4}}, "name every queue"),
        ({"t": {"0": 11, "1": 0, "2": 0}}, "is not there yet"),
    ):
        with pytest.raises(InvalidOption, match=problem):
            Query(reader_of(path, subscribe="t", startingOffsets=json.dumps(wrong))).step()


@pytest.mark.parametrize("chosen", [{}, {"subscribePattern": ".*"}])
@pytest.mark.parametrize("name", ["basic", "slow"])
def test_starts_by_time(name: str, chosen: dict[str, str]) -> None:
    """The whole log from its first record at or after the time; every queue from its own."""
    names = ("physicalOffset", "storeTimestamp")
    every = [
        (row["physicalOffset"], row["storeTimestamp"].timestamp() * 1000)
        for row in read(*names, store=str(golden_store(name)), **chosen).to_pylist()
    ]
    middle = int(sorted(time for _, time in every)[len(every) // 2])
    given = {"store": str(golden_store(name)), "startingTimestamp": str(middle), **chosen}
    given["startingOffsetsByTimestampStrategy"] = "latest"
    reader = make_stream_reader(given, schema_of(*names))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    got = [
        row["physicalOffset"]
        for task in reader.partitions(reader.initialOffset(), end)
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    assert sorted(got) == sorted(offset for offset, time in every if time >= middle)
    assert 0 < len(got) < len(every)


def test_a_time_that_is_not_there_yet(live: MessageStore, path: Path) -> None:
    """An error, or with the strategy 'latest' what is new from the first look on."""
    put(live, "t", 0, 10)
    for chosen in ({}, {"subscribe": "t"}):
        future: dict[str, Any] = {"startingTimestamp": 99_999_999_999_999, **chosen}
        with pytest.raises(InvalidOption, match="startingOffsetsByTimestampStrategy=latest"):
            Query(reader_of(path, **future)).step()
        future["startingOffsetsByTimestampStrategy"] = "latest"
        assert Query(reader_of(path, **future)).drain() == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "nope"}, "subscribe"),
        ({"assign": '{"nope": [0]}'}, "assign"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "endingOffsets"),
        ({"startingOffsets": '{"t": {"0": 1}}'}, "startingOffsets"),
        ({"table": "queues"}, "table"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger"),
        ({"subscribe": "t", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOff"),
        ({"subscribe": "t", "maxTriggerDelay": "5m"}, "maxTriggerDelay"),
        ({"subscribe": "t", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "maxTrigger"),
        ({"subscribe": "t", "maxBytesPerTrigger": "0"}, "maxBytesPerTrigger"),
        ({"maxBytesPerTriger": "1m"}, "did you mean 'maxBytesPerTrigger'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_wrong_options_name_themselves(
    live: MessageStore, path: Path, options: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidOption, match=named):
        Query(reader_of(path, **options)).step()


def test_a_stream_of_a_url_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="store"):
        Query(reader_of("memory://somewhere")).step()


# ---- equal to a batch


CHOSEN: list[dict[str, str]] = [{}, {"subscribePattern": ".*"}]
CAPS: list[dict[str, Any]] = [{"maxOffsetsPerTrigger": 150}, {"maxBytesPerTrigger": "30k"}]


@pytest.mark.parametrize(
    ("name", "chosen", "cap"),
    steps_to_try([*itertools.product(CLEAN + KILLED, CHOSEN, CAPS)], 7),
    ids=str,
)
def test_a_stream_gives_what_a_batch_gives_of_every_brokers_store(
    name: str, chosen: dict[str, str], cap: dict[str, Any]
) -> None:
    """Every row once, with every column, whatever the batches are cut to."""
    schema = schema_of(*MESSAGE_COLUMNS)
    given = {"store": str(golden_store(name)), **chosen}
    wanted = rows_of(read(*MESSAGE_COLUMNS, **given).to_batches())

    stream = make_stream_reader(
        {**given, "startingOffsets": "earliest", **{k: str(v) for k, v in cap.items()}}, schema
    )
    got, start, count = Counter[str](), through_json(stream.initialOffset()), 0
    while True:
        end = through_json(stream.latestOffset(start, stream.getDefaultReadLimit()))
        if end == start:
            break
        tasks = stream.partitions(start, end)
        rows = rows_of(batch for task in tasks for batch in stream.read(task))
        if "maxOffsetsPerTrigger" in cap:
            assert rows.total() <= 150
        got += rows
        start, count = end, count + 1
    assert got == wanted
    assert count >= (wanted.total() // 150 if "maxOffsetsPerTrigger" in cap else 1)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    return Counter(repr(row) for batch in batches for row in batch.to_pylist())


# ---- caps


def test_records_are_capped_and_shared_in_proportion(live: MessageStore, path: Path) -> None:
    for queue_id, count in enumerate((600, 300, 100)):
        put(live, "t", queue_id, count)
    query = Query(
        reader_of(path, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=100)
    )
    while query.step() is not None:
        pass
    assert [len(batch) for batch in query.batches] == [100] * 10
    assert Counter(row[1] for row in query.batches[0]) == {0: 60, 1: 30, 2: 10}
    assert sorted(row for batch in query.batches for row in batch) == [
        ("t", queue_id, n) for queue_id, count in enumerate((600, 300, 100)) for n in range(count)
    ]


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t,u"}])
def test_bytes_are_capped_softly(live: MessageStore, path: Path, chosen: dict[str, str]) -> None:
    """At most the cap and one record; a record larger than the cap comes alone."""
    put(live, "t", 0, 40, size=1000)
    put(live, "u", 0, 1, size=30_000)
    put(live, "t", 1, 40, size=1000)
    query = Query(reader_of(path, startingOffsets="earliest", maxBytesPerTrigger=10_000, **chosen))
    rows = query.drain()
    assert sorted(rows) == [
        *queue_rows("t", 0, 0, 40), *queue_rows("t", 1, 0, 40), *queue_rows("u", 0, 0, 1),
    ]  # fmt: skip
    sizes = [sum(30_000 if topic == "u" else 1000 for topic, _, _ in b) for b in query.batches]
    large = [batch for batch in query.batches if any(row[0] == "u" for row in batch)]
    assert len(large) == 1
    assert all(7_000 <= size <= 11_000 for size in sizes[:3])
    if chosen:
        assert large == [[("u", 0, 0)]] or len(large[0]) < 10


def test_a_batch_waits_for_its_least_and_not_longer_than_its_limit(
    live: MessageStore, path: Path
) -> None:
    reader = reader_of(
        path,
        subscribe="t",
        startingOffsets="latest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="30s",
    )
    clock = type("Clock", (), {"now": 100.0, "monotonic": lambda self: self.now})()
    reader._clock = clock
    put(live, "t", 0, 3)
    query = Query(reader)
    assert query.step() == []  # latest is decided without waiting
    put(live, "t", 0, 9)
    assert query.step() is None
    put(live, "t", 0, 1)
    assert query.step() == queue_rows("t", 0, 3, 13)
    put(live, "t", 0, 2)
    clock.now += 29
    assert query.step() is None
    clock.now += 2
    assert query.step() == queue_rows("t", 0, 13, 15)
    put(live, "t", 0, 2)
    reader.prepareForTriggerAvailableNow()  # which must come to an end
    assert query.step() == queue_rows("t", 0, 15, 17)


def test_available_now_ends_where_it_began_to_look(live: MessageStore, path: Path) -> None:
    """In batches under the cap, whatever is written meanwhile, and the next run takes that."""
    put(live, "t", 0, 50)
    options = {"subscribePattern": "t|v", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    reader = reader_of(path, **options)
    reader.prepareForTriggerAvailableNow()
    put(live, "t", 0, 50)
    live.create_topic("v", 1)
    put(live, "v", 0, 5)
    query = Query(reader)
    assert query.drain() == queue_rows("t", 0, 0, 50)
    assert [len(batch) for batch in query.batches] == [20, 20, 10]
    again = reader_of(path, **options)
    again.prepareForTriggerAvailableNow()
    rows = Query(again, query.start).drain()
    assert sorted(rows) == queue_rows("t", 0, 50, 100) + queue_rows("v", 0, 0, 5)


# ---- what is found while it runs


def test_new_queues_and_topics_are_found_and_start_at_their_beginning(
    live: MessageStore, path: Path
) -> None:
    put(live, "t", 0, 5)
    query = Query(reader_of(path, subscribePattern="t|new.*"))  # from the latest
    assert query.step() == []
    put(live, "t", 2, 3)
    assert query.step() == queue_rows("t", 2, 0, 3)
    live.create_topic("new1", 1)
    live.create_topic("other", 1)
    put(live, "new1", 0, 4)
    put(live, "other", 0, 4)
    assert query.step() == queue_rows("new1", 0, 0, 4)
    assert query.step() is None
    query = Query(reader_of(path, subscribePattern="not-yet"))
    assert query.step() == []
    live.create_topic("not-yet", 1)
    put(live, "not-yet", 0, 2)
    assert query.step() == queue_rows("not-yet", 0, 0, 2)


def test_only_assigned_queues_come_also_before_their_first_message(
    live: MessageStore, path: Path
) -> None:
    query = Query(reader_of(path, assign='{"t": [1, 2]}', startingOffsets="earliest"))
    put(live, "t", 0, 5)
    put(live, "t", 1, 5)
    assert query.step() == queue_rows("t", 1, 0, 5)
    put(live, "t", 2, 5)
    assert query.step() == queue_rows("t", 2, 0, 5)


# ---- a live store


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t"}])
def test_a_stream_beside_a_running_writer_gives_every_message_once(
    live: MessageStore, path: Path, chosen: dict[str, str]
) -> None:
    """In the order of each queue, over the ends of log and queue files, and never past the end."""
    done = threading.Event()

    def write() -> None:
        for turn in range(150):
            put(live, "t", turn % 3, turn % 17 + 1, size=50 + turn)
        done.set()

    query = Query(reader_of(path, startingOffsets="earliest", **chosen))
    writer = threading.Thread(target=write)
    writer.start()
    rows: list[Row] = []
    while not done.is_set():
        rows += query.drain()
    writer.join()
    rows += query.drain()
    for queue_id in range(3):
        mine = [row for row in rows if row[1] == queue_id]
        assert mine == queue_rows("t", queue_id, 0, live.max_offset("t", queue_id))


@pytest.mark.parametrize(("flush_mode", "pool"), cases_to_try([("async", True), ("sync", False)]))
def test_a_writer_that_is_killed_and_started_again(
    tmp_path: Path, flush_mode: str, pool: bool
) -> None:
    """Nothing acknowledged is missed, nothing comes twice, the end never goes back."""
    path, pool_path = tmp_path / "s", tmp_path / "pool"
    pool_path.mkdir()
    script = Path(__file__).parents[2] / "support" / "store_producer.py"
    query: Query | None = None
    rows: list[Row] = []
    acknowledged: dict[int, int] = {}
    before: dict[int, int] = {}
    for _ in range(3):
        before = dict(acknowledged)
        process = subprocess.Popen(
            [sys.executable, str(script), str(path), flush_mode, str(pool_path) if pool else "-"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        for count, line in enumerate(process.stdout):
            queue_id, first, added = map(int, line.split())
            acknowledged[queue_id] = max(acknowledged.get(queue_id, 0), first + added)
            if query is None:
                query = Query(reader_of(path, subscribe="t", startingOffsets="earliest"))
            if count % 5 == 0:
                rows += query.drain()
            if count == 60:
                process.kill()
        process.wait()
        assert query is not None
        rows += query.drain()
    # What the last kill left in the pool is seen when the next writer has replayed it.
    for queue_id, reached in (before if pool else acknowledged).items():
        mine = [row for row in rows if row[1] == queue_id]
        assert mine == queue_rows("t", queue_id, 0, len(mine))
        assert len(mine) >= reached


def test_a_checkpoint_goes_on_with_other_topics(live: MessageStore, path: Path) -> None:
    """What is not asked for any more is left out; what is new starts at its beginning."""
    put(live, "t", 0, 5)
    put(live, "u", 0, 5)
    query = Query(reader_of(path, subscribe="t", startingOffsets="earliest"))
    query.drain()
    put(live, "t", 0, 5)
    for options in ({"subscribe": "u"}, {"subscribePattern": "u"}, {"assign": '{"u": [0]}'}):
        assert Query(reader_of(path, **options), query.start).drain() == queue_rows("u", 0, 0, 5)


def test_a_store_that_a_broker_writes_is_followed(tmp_path: Path) -> None:
    """Its log is walked on from where it ended; what lies half written after the end is left."""
    whole = golden_store("basic")
    copy = golden_copy("basic", tmp_path)
    schema = schema_of("physicalOffset")
    every = read("physicalOffset", store=str(whole)).column(0).to_pylist()
    end = StoreView.open(whole).bounds.end_offset
    logs = sorted((copy / "commitlog").iterdir())
    contents = [log.read_bytes() for log in logs]

    def written(until: int, log: Path, data: bytes) -> bytes:
        here = max(0, min(len(data), until - int(log.name)))
        return data[:here] + bytes(len(data) - here)

    reader = make_stream_reader(
        {"store": str(copy), "subscribePattern": ".*", "startingOffsets": "earliest"}, schema
    )
    got: list[int] = []
    start = through_json(reader.initialOffset())
    cuts = [every[len(every) * part // 7] + 11 * (part % 2) for part in range(1, 7)]
    for until in [*cuts, end]:
        for log, data in zip(logs, contents, strict=True):
            with log.open("r+b") as file:
                file.write(written(until, log, data))
        following = through_json(reader.latestOffset(start, ReadAllAvailable()))
        for task in reader.partitions(start, following):
            for batch in reader.read(task):
                got += batch.column(0).to_pylist()
        whole_before = [offset for offset in every if offset < until]
        expected = whole_before[: len(whole_before) - (until in cuts[::2])]
        assert sorted(got) == expected
        start = following


# ---- what is lost


def remove(path: Path) -> None:
    """Remove a file or directory after the tick in which somebody may have looked."""
    time.sleep(TICK_S)
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def first_file(path: Path) -> Path:
    return sorted((path / "commitlog").iterdir())[0]


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t"}])
def test_what_retention_removed_after_the_offset(
    live: MessageStore, path: Path, chosen: dict[str, str]
) -> None:
    """An error that says what is lost and how to go on; or on from the oldest, as the option says."""
    put(live, "t", 0, 200, size=1000)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10, **chosen}
    query = Query(reader_of(path, **options))
    query.step()
    remove(first_file(path))
    for reader in (query.reader, reader_of(path, **options)):
        with pytest.raises(DataLost, match=r"removed before they were read.*failOnDataLoss=false"):
            Query(reader, query.start).step()
    rows = Query(reader_of(path, failOnDataLoss="false", **options), query.start).drain()
    assert rows == queue_rows("t", 0, 200 - len(rows), 200)
    assert 100 < len(rows) <= 160


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t"}])
def test_a_file_deleted_under_a_planned_batch(
    live: MessageStore, path: Path, chosen: dict[str, str]
) -> None:
    """Between the offset and the plan, and between the plan and the read."""
    put(live, "t", 0, 200, size=1000)
    options = {"startingOffsets": "earliest", **chosen}
    readers = {
        loses: reader_of(path, failOnDataLoss=loses, **options) for loses in ("true", "false")
    }
    ends = {
        loses: reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        for loses, reader in readers.items()
    }
    tasks = {
        loses: reader.partitions(reader.initialOffset(), ends[loses])
        for loses, reader in readers.items()
    }
    remove(first_file(path))

    with pytest.raises(DataLost, match=r"removed.*failOnDataLoss=false"):
        [batch for task in tasks["true"] for batch in readers["true"].read(task)]
    with pytest.raises(DataLost, match="failOnDataLoss=false"):
        readers["true"].partitions(readers["true"].initialOffset(), ends["true"])
    left = [batch for task in tasks["false"] for batch in readers["false"].read(task)]
    again = Query(readers["false"]).run(readers["false"].initialOffset(), ends["false"])
    assert sum(len(batch) for batch in left) == len(again)
    assert again == queue_rows("t", 0, 200 - len(again), 200)


def test_a_deleted_topic(live: MessageStore, path: Path) -> None:
    put(live, "t", 0, 5)
    put(live, "u", 0, 5)
    options = {"subscribePattern": "t|u", "startingOffsets": "earliest"}
    query = Query(reader_of(path, **options))
    assert len(query.drain()) == 10
    assert live.writer.wait_dispatched(live.writer.appended_offset, 10)
    remove(path / "consumequeue" / "u")
    put(live, "t", 0, 5)
    with pytest.raises(DataLost, match=r"queue 0 of topic .u..*is gone"):
        query.step()
    going_on = Query(reader_of(path, failOnDataLoss="false", **options), query.start)
    assert going_on.drain() == queue_rows("t", 0, 5, 10)


def make_again(store: MessageStore, topic: str, queue_count: int) -> None:
    store.delete_topic(topic)
    store.create_topic(topic, queue_count)


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "started again"])
@pytest.mark.parametrize("count", [3, 15])
def test_a_topic_that_was_deleted_and_made_again(
    live: MessageStore, path: Path, is_running: bool, count: int
) -> None:
    """Its offsets begin again: an error that names it, or the new one from its beginning, all of it."""
    put(live, "t", 0, 10)
    put(live, "t", 2, 10)
    put(live, "u", 0, 10)
    options = {"subscribe": "t,u", "startingOffsets": "earliest"}
    query = Query(reader_of(path, **options))
    assert len(query.drain()) == 30
    make_again(live, "t", 1)
    put(live, "t", 0, count)
    put(live, "u", 0, 5)
    with pytest.raises(
        DataLost, match=r"topic 't' .* was deleted and created again.*=false to read"
    ):
        (query if is_running else Query(reader_of(path, **options), query.start)).step()

    going_on = Query(reader_of(path, failOnDataLoss="false", **options), query.start)
    start = going_on.start
    rows = going_on.drain()
    assert sorted(rows) == queue_rows("t", 0, 0, count) + queue_rows("u", 0, 10, 15)
    again = Query(reader_of(path, failOnDataLoss="false", **options))
    assert start is not None and going_on.start is not None
    assert sorted(again.run(start, going_on.start)) == sorted(rows)
    put(live, "t", 0, 5)
    assert Query(reader_of(path, **options), going_on.start).drain() == (
        queue_rows("t", 0, count, count + 5)
    )


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t"}])
def test_a_store_that_was_put_back_or_made_again(tmp_path: Path, chosen: dict[str, str]) -> None:
    """Its offsets are not the checkpoint's any more: an error, whatever failOnDataLoss says."""
    path = tmp_path / "s"

    def fill(count: int) -> None:
        with MessageStore.open(path, small_config()) as store:
            if "t" not in [topic.name for topic in store.list_topics()]:
                store.create_topic("t", 1)
            put(store, "t", 0, count)

    fill(10)
    shutil.copytree(path, tmp_path / "older")
    fill(10)
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false", **chosen}
    query = Query(reader_of(path, **options))
    assert len(query.drain()) == 20

    shutil.rmtree(path)
    (tmp_path / "older").rename(path)
    for reader in (query.reader, reader_of(path, **options)):
        with pytest.raises(WrongCheckpoint, match="put back to an older state"):
            Query(reader, query.start).step()
    shutil.rmtree(path)
    fill(30)
    with pytest.raises(WrongCheckpoint, match="another store"):
        Query(reader_of(path, **options), query.start).step()


def test_a_checkpoint_of_another_store_or_stream_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with MessageStore.open(tmp_path / name, small_config()) as store:
            store.create_topic("t", 1)
            put(store, "t", 0, 10)
    options = {"subscribe": "t", "startingOffsets": "earliest"}
    query = Query(reader_of(tmp_path / "a", **options))
    query.drain()
    assert query.start is not None
    with pytest.raises(WrongCheckpoint, match=f"is of store {tmp_path}/a .*reads {tmp_path}/b"):
        Query(reader_of(tmp_path / "b", **options), query.start).step()
    with pytest.raises(WrongCheckpoint, match="choose topics"):
        Query(reader_of(tmp_path / "a"), query.start).step()
    with pytest.raises(WrongCheckpoint, match="version 2"):
        Query(reader_of(tmp_path / "a", **options), {**query.start, "version": 2}).step()
    with pytest.raises(WrongCheckpoint, match="not one of this format"):
        Query(reader_of(tmp_path / "a", **options), {"t": {"0": 5}}).step()
    (tmp_path / "a").rename(tmp_path / "moved")
    assert Query(reader_of(tmp_path / "moved", **options), query.start).step() is None


def test_offsets_have_the_documented_shape(live: MessageStore, path: Path) -> None:
    put(live, "t", 1, 5)
    identity = reader_of(path)._progress.look()[str(path)].store_id
    assert identity is not None and len(identity) == 32
    reader = reader_of(path, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=2)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert end == {
        "version": 1,
        "stores": {
            str(path): {
                "id": identity,
                "queues": {"t": {"1": 2}},
                "from": {"t": {"1": 0}},
                "incarnations": {},
            }
        },
    }
    assert reader.reportLatestOffset() == {
        "version": 1,
        "stores": {str(path): {"id": identity, "queues": {"t": {"1": 5}}, "incarnations": {}}},
    }
    reader = reader_of(path)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    offset = StoreView.open(path).bounds.end_offset
    assert end["stores"][str(path)] == {"id": identity, "log": offset, "from": offset}


def test_a_store_that_disappears(live: MessageStore, path: Path) -> None:
    put(live, "t", 0, 5)
    query = Query(reader_of(path, subscribe="t", startingOffsets="earliest"))
    query.drain()
    live.close()
    path.rename(path.with_name("gone"))
    with pytest.raises(NotAStore, match="has disappeared"):
        query.step()
