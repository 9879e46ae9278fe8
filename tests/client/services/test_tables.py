"""Records by columns: what tables hold is what records say, and what is sent is what was in the table."""

from __future__ import annotations

import mmap
import shutil
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from real_processes import until
from three_services import ThreeServices

from penstock import (
    AsyncClient,
    Client,
    DataLoss,
    InvalidArgument,
    Message,
    TableNotStored,
    TopicNotFound,
    read_table,
)
from penstock.record import Record
from storage.errors import NotAStore
from storage.format.compression import COMPRESSED
from storage.store import MessageStore

pa = pytest.importorskip("pyarrow")
tables = pytest.importorskip("storage.arrow.tables")

ROWS = 300


def table_of(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "body": [b"body %d" % n for n in numbers],
            "keys": [[f"k{n}", f"größe-{n}"] if n % 3 else None for n in numbers],
            "tag": ["even" if n % 2 == 0 else None for n in numbers],
            "properties": pa.array(
                [[("number", str(n))] if n % 5 else [] for n in numbers],
                pa.map_(pa.string(), pa.string()),
            ),
            "unused": list(numbers),
        }
    )


def of_record(record: Record) -> dict[str, Any]:
    """What a record says, by the names and as the values of a table."""
    own = {name: text for name, text in record.properties.items() if name == "number"}
    return {
        **{
            name: getattr(record, name)
            for name in (
                "topic", "queue_id", "queue_offset", "commit_offset", "body", "message_id", "size", "born_host",
                "store_host", "flag", "sys_flag", "reconsume_times",
            )
        },
        "tag": record.tag or None,
        "keys": list(record.keys) or None,
        "properties": list(own.items()),
        "unique_key": record.unique_key or None,
        "born_timestamp": datetime.fromtimestamp(record.born_timestamp_ms / 1e3, UTC),
        "store_timestamp": datetime.fromtimestamp(record.store_timestamp_ms / 1e3, UTC),
        "prepared_offset": record.prepared_transaction_offset,
    }  # fmt: skip


def test_every_column_is_what_the_records_say(client: Client, topic: str) -> None:
    client.produce_arrow(topic, table_of())
    client.produce(topic, b"x", keys=["k"], tag="odd", queue_id=0, flag=7, unique_key="mine")
    names = [name for name in tables.TYPES if name != "body_crc"]
    with client.pull_arrow(topic, 0, columns=names) as batches:
        rows = pa.Table.from_batches(list(batches), batches.schema).to_pylist()
    assert rows == [of_record(each) for each in client.consume(topic, queues=[0], follow=False)]
    assert {name: kind for name, kind in tables.TYPES.items() if name in tables.USUAL} == {
        "topic": pa.string(), "queue_id": pa.int32(), "queue_offset": pa.int64(), "commit_offset": pa.int64(),
        "born_timestamp": pa.timestamp("us", "UTC"), "store_timestamp": pa.timestamp("us", "UTC"),
        "tag": pa.string(), "keys": pa.list_(pa.string()), "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
    }  # fmt: skip


def test_a_table_goes_round(client: Client, topic: str) -> None:
    sent = table_of()
    assert client.produce_arrow(topic, sent).row_count == ROWS
    with client.consume_arrow(topic, follow=False) as batches:
        got = pa.Table.from_batches(list(batches), batches.schema)
    assert {row["queue_id"] for row in got.select(["queue_id"]).to_pylist()} == {0, 1, 2, 3}
    client.create_topic(f"{topic}-2", queues=1)
    client.produce_arrow(f"{topic}-2", got)
    with client.pull_arrow(f"{topic}-2", 0, columns=["body", "keys", "tag", "properties"]) as again:
        back = pa.Table.from_batches(list(again), again.schema)
    names = ["body", "keys", "tag", "properties"]
    by_body = sorted(sent.select(names).to_pylist(), key=lambda row: row["body"])
    for table in (got, back):
        rows = table.select(names).to_pylist()
        assert sorted(rows, key=lambda row: row["body"]) == by_body


def frames(table: pa.Table) -> list[Any]:
    import pandas as pd

    kinds = {"body": pd.ArrowDtype(pa.large_binary()), "keys": pd.ArrowDtype(pa.large_string())}
    pandas = pd.DataFrame({"body": table["body"].to_pylist()}).astype({"body": kinds["body"]})
    large = pa.table(
        {
            "body": table["body"].cast(pa.large_binary()),
            "keys": pa.array(["a b" if n else None for n in range(len(table))], pa.large_string()),
            "properties": pa.array(
                [[{"key": "number", "value": "1"}]] * len(table),
                pa.large_list(pa.struct([("key", pa.string()), ("value", pa.string())])),
            ),
        }
    )
    return [
        pandas,
        large,
        table.combine_chunks().to_batches()[0],
        table.to_reader(7),
        pa.table({"body": pa.array(["text"] * len(table), pa.string_view())}),
    ]


@pytest.mark.parametrize("number", range(5))
def test_tables_of_others_are_sent_as_well(client: Client, topic: str, number: int) -> None:
    table = frames(table_of(50))[number]
    assert client.produce_arrow(topic, table).row_count == 50
    records = list(client.consume(topic, follow=False))
    assert len(records) == 50
    if number == 1:
        assert (records[1].keys, records[1].properties["number"]) == (("a", "b"), "1")


def bad_body(table: pa.Table) -> pa.Table:
    return table.set_column(0, "body", pa.array([b"x"] * (ROWS - 1) + [None]))


def late(last: Any) -> Callable[[Any], Any]:
    """Add a delay to the last row."""
    return lambda table: table.append_column("delay_ms", pa.array([None] * (ROWS - 1) + [last]))


@pytest.mark.parametrize(
    ("change", "options", "field", "words"),
    [
        (lambda table: table.drop(["body"]), {}, "body", "the table does not have"),
        (bad_body, {}, "body", f"row {ROWS - 1} is null"),
        (lambda table: table, {"queue_id": "unused"}, "unused", "row 4 is 4, which the topic"),
        (lambda table: table, {"queue_id": "nope"}, "queue_id", "'nope'"),
        (lambda _: [1, 2], {}, "table", "list, which is no table"),
        (lambda table: table, {"token": "x"}, "token", "is no token"),
        (late(-5), {}, "delay_ms", f"row {ROWS - 1} is -5, which is not a number of milliseconds"),
        (late("x"), {}, "delay_ms", "from row 0 on cannot be read as int64"),
        (
            late(datetime(2030, 1, 1)),
            {"deliver_at_ms": "delay_ms", "delay_ms": ""},
            "delay_ms",
            "without a zone",
        ),
    ],
    ids=[
        "no-body",
        "null-body",
        "no-such-queue",
        "no-such-column",
        "no-table",
        "no-token",
        "late",
        "late-text",
        "no-zone",
    ],
)
def test_a_table_that_can_be_no_messages_is_refused_and_nothing_is_stored(
    client: Client, topic: str, change: Callable[[Any], Any], options: Any, field: str, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words) as refused:
        client.produce_arrow(topic, change(table_of()), **options)
    assert refused.value.field == field
    assert not list(client.consume(topic, follow=False))


def test_rows_with_a_delay_are_delivered_then(client: Client, topic: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    soon = datetime.fromtimestamp(now_ms / 1e3 + 0.6, UTC)
    table = pa.table(
        {
            "body": [b"now", b"delay", b"at", b"over"],
            "delay_ms": pa.array(
                [None, timedelta(milliseconds=600), None, None], pa.duration("us")
            ),
            "deliver_at_ms": pa.array([None, None, soon, now_ms // 2], pa.timestamp("us", "UTC")),
        }
    )
    assert client.produce_arrow(topic, table).row_count == 4
    until(lambda: len(list(client.consume(topic, follow=False))) == 4)
    stored = {
        record.body: record.store_timestamp_ms for record in client.consume(topic, follow=False)
    }
    assert stored[b"delay"] >= now_ms + 600
    assert stored[b"at"] >= now_ms + 600
    assert max(stored[b"now"], stored[b"over"]) < min(stored[b"delay"], stored[b"at"])


def test_a_delayed_row_is_stored_once_by_the_call_that_goes_on(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request's last row asks for a delay that the writer refuses, and names it."""
    monkeypatch.setattr("penstock.client.tables.PART_BYTES", 2_000)
    bodies = [b"%d" % n * 40 for n in range(20)]
    table = pa.table({"body": bodies, "delay_ms": [300] * 19 + [50 * 86_400_000]})
    with pytest.raises(TableNotStored, match="then: row 19: TIMER_DELIVER_MS") as failed:
        client.produce_arrow(topic, table)
    better = table.set_column(1, "delay_ms", pa.array([300] * 20))
    assert client.produce_arrow(topic, better, token=failed.value.token).row_count == 20
    until(lambda: len(list(client.consume(topic, follow=False))) >= 20)
    assert sorted(each.body for each in client.consume(topic, follow=False)) == sorted(bodies)
    with pytest.raises(InvalidArgument, match=r"^row 1: TIMER_DELIVER_MS") as refused:
        client.produce_arrow(topic, table.slice(18))
    assert refused.value.record_index == 1


def test_a_column_that_there_is_not_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(InvalidArgument, match=r"'offset'; there are topic, queue_id"):
        client.pull_arrow(topic, 0, columns=["offset"])
    with pytest.raises(InvalidArgument):
        read_table("127.0.0.1:1", topic, columns=["offset"])


def test_a_consumer_by_columns_commits_what_was_handed_out(client: Client, topic: str) -> None:
    client.produce_arrow(topic, table_of())
    bodies = []
    for _ in range(2):  # one batch, then the rest
        with client.consume_arrow(topic, group=f"of-{topic}", columns=["body"], follow=False) as it:
            bodies += next(it)["body"].to_pylist()
            it.commit()
            assert sum(it.positions.values()) == len(bodies)
    with client.consume_arrow(topic, group=f"of-{topic}", columns=["body"], follow=False) as it:
        for batch in it:
            bodies += batch["body"].to_pylist()
    assert sorted(bodies) == sorted(table_of()["body"].to_pylist())
    assert sum(each.lag for each in client.offsets(f"of-{topic}", topic)) == 0


def test_a_batch_in_hand_is_not_consumed_when_the_consumer_is_left_by_an_exception(
    client: Client, topic: str
) -> None:
    client.produce_arrow(topic, table_of())
    group = f"of-{topic}"
    with (
        pytest.raises(ZeroDivisionError),
        client.consume_arrow(topic, group=group, queues=[0], follow=False) as it,
    ):
        count = next(it).num_rows
        raise ZeroDivisionError
    with client.consume_arrow(topic, group=group, queues=[0], follow=False) as it:
        assert next(it).num_rows == count


def test_a_body_that_cannot_be_unpacked_is_null_and_the_rest_is_there(
    client: Client, topic: str
) -> None:
    packed = zlib.compress(b"hello")
    for body in (packed, b"no zlib", packed):
        client.produce_many([Message(topic=topic, body=body, queue_id=0, sys_flag=COMPRESSED)])
    with client.pull_arrow(topic, 0, columns=["queue_offset", "body"]) as batches:
        rows = pa.Table.from_batches(list(batches), batches.schema).to_pylist()
    assert [row["body"] for row in rows] == [b"hello", None, b"hello"]


def test_tags_of_one_hash_are_told_apart_in_a_directory(
    client: Client, topic: str, services: ThreeServices
) -> None:
    for tag in ("Aa", "BB"):  # Java's hash of both is the same
        client.produce(topic, tag.encode(), tag=tag, queue_id=0)
    client.pull(topic, 0, 0)
    for source in (services.store, client.addresses.reader):
        found = read_table(source, topic, tag="Aa||", columns=["body"])
        assert found["body"].to_pylist() == [b"Aa"]


def test_records_that_are_in_no_queue_are_read_from_a_directory(tmp_path: Path) -> None:
    count = 9_000  # more than one look takes
    with MessageStore.open(tmp_path / "s") as store:
        store.create_topic("t", 1)
        store.put_all([Message(topic="t", body=b"%d" % n) for n in range(count)])
    shutil.rmtree(tmp_path / "s" / "consumequeue" / "t")
    table = read_table(tmp_path / "s", "t", columns=["queue_offset", "body"])
    assert table["queue_offset"].to_pylist() == list(range(count))
    assert table["body"].to_pylist() == [b"%d" % n for n in range(count)]


def test_a_store_behind_a_url_is_read_as_its_directory_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    directory, url = tmp_path / "s", f"memory://{tmp_path.name}/s"
    with MessageStore.open(directory) as store:
        store.create_topic("t", 2)
        store.put_all(
            [
                Message(topic="t", body=b"%d" % n * 50, queue_id=n % 2, tag=("a", "b")[n % 3 > 0])
                for n in range(5_000)
            ]
        )
    fsspec.filesystem("memory").put(f"{directory}/", f"/{tmp_path.name}/s/", recursive=True)
    options: dict[str, Any]
    for options in ({}, {"queues": [1], "start": 7, "end": 2_000}, {"tag": "a"}):
        here = read_table(directory, "t", **options)
        assert here.num_rows
        assert read_table(url, "t", **options).equals(here)
    with pytest.raises(TopicNotFound, match="nope"):
        read_table(url, "nope")
    with pytest.raises(NotAStore, match="memory://elsewhere"):
        read_table("memory://elsewhere", "t")
    with pytest.raises(NotAStore, match="strange"):
        read_table("strange://s", "t")
    given: dict[str, Any] = {}
    made = fsspec.filesystem
    monkeypatch.setattr(fsspec, "filesystem", lambda name, **rest: given.update(rest) or made(name))
    read_table(url, "t", storage_options={"key": "mine"})
    assert given == {"key": "mine"}


def test_a_subscription_by_columns_acknowledges_a_batch_with_the_next(
    client: Client, topic: str
) -> None:
    client.produce_arrow(topic, table_of())
    group = f"of-{topic}"
    with client.subscribe_arrow(
        topic, group=group, idle_s=5, max_messages=40, columns=["body"]
    ) as it:
        first = next(it)
        assert it.current is not None
        assert [each.body for each in it.current] == first["body"].to_pylist()
        it.current[3].nack(delay_ms=0)
        rows = first.num_rows + sum(each.num_rows for each in it)
    assert rows == ROWS + 1
    assert not client.receive(topic, group=group).records


def damage(client: Client, topic: str, services: ThreeServices, number: int) -> None:
    """Flip a byte of the body of a record that is in the log."""
    (record,) = client.pull(topic, 0, number, max_messages=1).records
    files = {int(each.name): each for each in (services.store / "commitlog").iterdir()}
    start = max(each for each in files if each <= record.commit_offset)
    with files[start].open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        at = data.find(record.body, record.commit_offset - start)
        data[at] ^= 1


def test_a_damaged_record_is_named_and_the_others_are_read(
    client: Client, topic: str, services: ThreeServices
) -> None:
    for n in range(20):
        client.produce(topic, b"%s body %d" % (topic.encode(), n), queue_id=0)
    damage(client, topic, services, 7)
    whole = [n for n in range(20) if n != 7]

    batches = client.pull_arrow(topic, 0, columns=["queue_offset"])
    got = next(batches)["queue_offset"].to_pylist()
    with pytest.raises(DataLoss, match="offset 7"):
        next(batches)
    assert got + [n for each in batches for n in each["queue_offset"].to_pylist()] == whole

    consumer = client.consume_arrow(topic, queues=[0], columns=["queue_offset"], follow=False)
    assert next(consumer)["queue_offset"].to_pylist() == whole[:7]
    with pytest.raises(DataLoss, match="offset 7"):
        next(consumer)
    assert consumer.positions[0] == 7  # it is passed over when the next batch is asked for
    assert next(consumer)["queue_offset"].to_pylist() == whole[7:]

    for source in (client.addresses.reader, services.store):
        with pytest.raises(DataLoss):
            read_table(source, topic)
        assert read_table(source, topic, start=8, queues=[0]).num_rows == 12


@pytest.mark.parametrize("where", ["reader", "directory"])
def test_a_topic_is_read_whole_or_between_offsets_and_times(
    client: Client, topic: str, services: ThreeServices, where: str
) -> None:
    client.produce_arrow(topic, table_of(100))
    between = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= between:
        pass
    client.produce_arrow(topic, table_of(50))
    client.pull(topic, 0, 0)  # the reader has seen all
    source = client.addresses.reader if where == "reader" else services.store

    def rows(**options: Any) -> int:
        return int(read_table(source, topic, **options).num_rows)

    assert rows() == 150
    assert rows(start=between) == 50
    assert rows(end=between) == 100
    assert rows(start="latest") == 0
    assert rows(queues=[1], start=10, end=12) == 2
    assert rows(tag="even || other") == 75
    assert read_table(source, topic, columns=["queue_offset", "tag"]).column_names == [
        "queue_offset", "tag",
    ]  # fmt: skip
    with pytest.raises(TopicNotFound):
        read_table(source, "no-such-topic")


async def test_the_asyncio_client_has_tables_too(aclient: AsyncClient, topic: str) -> None:
    assert (await aclient.produce_arrow(topic, table_of())).row_count == ROWS
    async with aclient.consume_arrow(topic, follow=False, columns=["body"]) as batches:
        assert sum([each.num_rows async for each in batches]) == ROWS
    async with aclient.pull_arrow(topic, 1, columns=["body"]) as stream:
        rows = sum([each.num_rows async for each in stream])
        assert stream.next_offset == rows
    async with aclient.subscribe_arrow(topic, group="t", idle_s=2) as leased:
        assert sum([each.num_rows async for each in leased]) == ROWS
