"""Stores at a URL are read as those of this machine are, and little of them is fetched."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from engine_store import small_config
from fsspec.implementations.memory import MemoryFileSystem
from golden import STORES, golden_store
from spark_reads import read, schema_of
from steps_to_try import steps_to_try

from pipeline import audit
from pipeline.errors import InvalidOption, NotAStore, PipelineError
from pipeline.source.options import parse_options
from pipeline.source.plan import plan_messages
from pipeline.source.read import Reader
from pipeline.source.source import wanted_columns
from pipeline.source.tables import parts_of, read_part
from storage import Message, MessageStore
from storage.view.store_view import StoreView

FILES = {
    "commit_log_file_size": 8 << 20,
    "consume_queue_file_size": 20 * 5_000,
    "index_slot_count": 1_000,
    "index_entry_count": 4_000,
}
TABLES = ("consumequeue", "index", "checkpoint", "queues")


class CountedFileSystem(MemoryFileSystem):
    """A file system in memory that counts the bytes it hands out, and remembers its options."""

    protocol = "counted"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    fetched: ClassVar[dict[str, int]] = {}
    opened_with: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("counted://", "memory://"))

    def __init__(self, *args: Any, **options: Any) -> None:
        self.opened_with.append(options)
        super().__init__(*args, **options)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> Any:
        data = super().cat_file(path, start=start, end=end, **options)
        name = "/".join(path.strip("/").split("/")[1:])
        self.fetched[name] = self.fetched.get(name, 0) + len(data)
        return data


@pytest.fixture
def counted() -> Iterator[type[CountedFileSystem]]:
    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)
    CountedFileSystem.clear_instance_cache()
    yield CountedFileSystem
    for shared in (
        CountedFileSystem.store,
        CountedFileSystem.fetched,
        CountedFileSystem.opened_with,
    ):
        shared.clear()
    CountedFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def in_memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.rm("/stores", recursive=True)


def table(store: str, name: str) -> list[dict[str, Any]]:
    options = parse_options({"store": store, "table": name})
    columns = wanted_columns(options, schema_of(table=name))
    place = options.stores[0]
    return [
        row
        for part in parts_of(place, name)
        for batch in read_part(place, name, part, columns)
        for row in batch.to_pylist()
    ]


def fill(directory: Path, topics: tuple[tuple[str, int], ...]) -> None:
    """A store of ours with so many messages of about 1 KiB in each topic, in turn."""
    body = np.random.default_rng(1).bytes(1000)
    with MessageStore.open(directory, small_config(**FILES)) as store:
        for topic, _ in topics:
            store.create_topic(topic, 1)
        for number in range(max(count for _, count in topics)):
            store.put_all(
                [
                    Message(topic=topic, queue_id=0, body=body, keys=(f"k{number}",))
                    for topic, count in topics
                    if number % max(1, max(c for _, c in topics) // count) == 0
                ]
            )


@pytest.mark.parametrize(
    "name", steps_to_try([each for each in STORES if each != "defaults"], 4)
)  # of 1.5 GiB
def test_every_record_of_a_brokers_store_is_read_alike(in_memory: Any, name: str) -> None:
    """Field by field what a read of the directory gives, itself compared with the broker's dump."""
    here, there = str(golden_store(name)), f"memory://stores/{name}"
    in_memory.put(here, f"/stores/{name}", recursive=True)

    assert read(store=there).equals(read(store=here))
    for topic in sorted(set(read(store=here)["topic"].to_pylist())):
        assert read(store=there, subscribe=topic).equals(read(store=here, subscribe=topic)), topic


@pytest.mark.parametrize("name", ["basic", "lmq", "cleaned", "syncflushkilled"])
def test_every_table_is_read_alike(in_memory: Any, name: str) -> None:
    here, there = str(golden_store(name)), f"memory://stores/{name}"
    in_memory.put(here, f"/stores/{name}", recursive=True)

    for kind in TABLES:
        assert table(there, kind) == table(here, kind), kind
    paths = [row["path"] for row in table(there, "files")]
    assert len(paths) == len(table(here, "files")) and all(p.startswith(there) for p in paths)


def test_a_glob_and_a_list_of_urls_say_which_store(spark: Any) -> None:
    directory = golden_store("basic").parent
    for name in ("basic", "slow"):
        golden_store(name)
    globbed = spark.read.format("penstock").load(f"local://{directory}/[bs]*[ci]*")
    listed = json.dumps([f"local://{directory}/basic", str(directory / "slow")])
    both = spark.read.format("penstock").option("table", "queues").load(listed)

    [local] = parse_options({"store": f"{directory}/sl*w"}).stores
    assert str(local) == str(directory / "slow")
    assert f"local://{directory}/basic" in {row.store for row in globbed.select("store").collect()}
    assert {row.store for row in both.collect()} == {
        f"local://{directory}/basic", str(directory / "slow"),
    }  # fmt: skip


def test_an_audit_reads_a_store_at_a_url(spark: Any) -> None:
    store = golden_store("basic")
    here, there = audit(spark, str(store)), audit(spark, f"local://{store}")

    assert (there.records, there.units, there.finding_count) == (here.records, here.units, 0)
    assert there.store == f"local://{store}" and here.records > 0


def test_planning_fetches_little(tmp_path: Path, counted: Any) -> None:
    """Of 16 MiB of log a plan with cuts, times and offsets looks at less than an eighth."""
    fill(tmp_path / "store", (("big", 12_000), ("small", 120)))
    counted().put(str(tmp_path / "store"), "/store", recursive=True)
    log_bytes = StoreView.open(tmp_path / "store").bounds.end_offset
    given = {"store": "counted://store", "maxPartitionBytes": "4m"}
    tasks = plan_messages(parse_options(given))
    plan_messages(parse_options({**given, "subscribe": "big", "startingTimestamp": "1"}))

    assert log_bytes > 12 << 20 and len(tasks) >= 3
    log = sum(size for name, size in counted.fetched.items() if name.startswith("commitlog"))
    assert 0 < log < log_bytes / 8


def test_a_copy_that_is_older_than_its_checkpoint_ends_at_its_last_record(
    tmp_path: Path, in_memory: Any
) -> None:
    """Copied while in use, log first: checkpoint and queues name records that are not there."""
    directory = tmp_path / "store"
    fill(directory, (("a", 50),))
    in_memory.put(str(directory / "commitlog"), "/stores/live/commitlog", recursive=True)
    before = read(store=str(directory))
    with MessageStore.open(directory, small_config(**FILES)) as store:
        for number in range(50):
            store.put(Message(topic="a", queue_id=0, body=b"later %d" % number))
    for name in ("consumequeue", "config", "checkpoint"):
        in_memory.put(str(directory / name), f"/stores/live/{name}", recursive=True)

    assert before.num_rows == 50 and read(store=str(directory)).num_rows == 100
    assert read(store="memory://stores/live").equals(before)
    assert read(store="memory://stores/live", subscribe="a").equals(before)


def test_storage_options_reach_the_file_system_and_no_message(tmp_path: Path, counted: Any) -> None:
    fill(tmp_path / "store", (("a", 3),))
    counted().put(str(tmp_path / "store"), "/store", recursive=True)
    options = parse_options({"store": "counted://store", "storageOptions": '{"secret": "s3cr3t"}'})
    counted.clear_instance_cache()
    counted.opened_with.clear()
    plan_messages(pickle.loads(pickle.dumps(options)))

    assert counted.opened_with
    assert all(each == {"secret": "s3cr3t"} for each in counted.opened_with)
    assert "s3cr3t" not in repr(options)


def test_a_file_that_went_after_the_plan_is_lost_data(tmp_path: Path, in_memory: Any) -> None:
    fill(tmp_path / "store", (("a", 50),))
    in_memory.put(str(tmp_path / "store"), "/stores/s", recursive=True)
    options = parse_options({"store": "memory://stores/s", "failOnDataLoss": "false"})
    columns = wanted_columns(options, schema_of("topic"))
    tasks = plan_messages(options)
    in_memory.rm("/stores/s/commitlog", recursive=True)

    assert [b for pieces in tasks for b in Reader(options, columns).read(pieces)] == []
    strict = parse_options({"store": "memory://stores/s"})
    with pytest.raises(PipelineError, match="failOnDataLoss"):
        list(Reader(strict, columns).read(tasks[0]))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"store": "nosuch://bucket/store*"}, "Protocol not known"),
        ({"store": "/tmp", "storageOptions": "{}"}, "storageOptions"),
        ({"store": "memory://x", "storageOptions": "[1]"}, "storageOptions"),
        ({"store": "memory://nothing/*"}, "no directory matches"),
    ],
)
def test_a_wrong_place_is_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        parse_options(given)


def test_a_url_without_a_store_is_not_a_store() -> None:
    with pytest.raises(NotAStore, match="memory://nothing"):
        plan_messages(parse_options({"store": "memory://nothing"}))


def test_records_that_no_queue_of_a_copy_knows_are_read(tmp_path: Path, in_memory: Any) -> None:
    """Copied while in use, queues first: the log has more than they name."""
    directory = tmp_path / "store"
    fill(directory, (("a", 50), ("b", 1)))
    in_memory.put(str(directory / "consumequeue"), "/stores/live/consumequeue", recursive=True)
    with MessageStore.open(directory, small_config(**FILES)) as store:
        for number in range(60):
            store.put_all([Message(topic="b", queue_id=0, body=b"%d" % number * 900)] * 100)
    in_memory.put(str(directory / "commitlog"), "/stores/live/commitlog", recursive=True)

    assert read(store="memory://stores/live").equals(read(store=str(directory)))
