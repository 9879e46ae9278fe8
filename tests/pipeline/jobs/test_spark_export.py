"""Exports: every message once, by topic and day, whatever was killed in between."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from broken_stores import break_a_body
from engine_store import small_config
from golden import CLEAN, golden_copy, golden_dump, golden_store
from local_spark import LocalSpark
from steps_to_try import steps_to_try
from typer.testing import CliRunner

from pipeline import export
from pipeline.errors import DataLost, InvalidOption, PipelineError
from pipeline.jobs.export import manifest as export_manifest
from pipeline.jobs.export import targets as export_targets
from storage import Message, MessageStore

SPARK: Any = LocalSpark()
FORMATS = ("parquet", "delta", "iceberg")
DAY_MS = 86_400_000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


class SetClock:
    """A store's clock that stands where it is put."""

    def __init__(self) -> None:
        self.ms = NOON_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return time.monotonic()


def rows_of(root: Path, file_format: str = "parquet") -> list[dict[str, Any]]:
    """Everything an export holds, as a reader of its format sees it."""
    if file_format == "parquet":
        files = [str(path) for path in root.glob("topic=*/dt=*/*.parquet")]
        table = ds.dataset(
            files, format="parquet", partition_base_dir=str(root),
            partitioning=ds.partitioning(flavor="hive"),
        ).to_table()  # fmt: skip
    elif file_format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(root)).to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("penstock", uri=f"sqlite:///{root}/catalog.db")
        table = catalog.load_table("penstock.messages").scan().to_arrow()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["queueOffset"]


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted(place(row) for row in rows)


def stored(name: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    """The broker's lines of a golden store's messages, but those of light queues."""
    lines = [line for line in golden_dump(name) if line["type"] == "message"]
    return {place(line): line for line in lines if not line["topic"].startswith("%LMQ%")}


def make_store(directory: Path, counts: dict[str, int], clock: Any = None) -> Path:
    config = small_config(index_slot_count=100, index_entry_count=400)
    with MessageStore.open(directory, config, clock=clock) as store:
        for topic, count in counts.items():
            if topic not in {known.name for known in store.writer.list_topics()}:
                store.create_topic(topic, 2)
            for number in range(count):
                store.put(Message(topic=topic, queue_id=number % 2, body=b"%d" % number))
    return directory


@pytest.mark.parametrize("name", CLEAN)
def test_every_message_is_exported_as_the_broker_has_it(tmp_path: Path, name: str) -> None:
    report = export(SPARK, golden_store(name), tmp_path / "out")
    rows = rows_of(tmp_path / "out")
    wanted = stored(name)

    assert report.rows == len(rows) == len(wanted)
    for row in rows:
        line = wanted[place(row)]
        assert row["physicalOffset"] == line["commitLogOffset"]
        assert dict(row["properties"]).get("KEYS") == line["properties"].get("KEYS")
        assert row["storeTimestamp"].timestamp() * 1000 == line["storeTimestamp"]
        assert row["dt"] == row["storeTimestamp"].date().isoformat()
        if not row["sysFlag"] & 1:
            assert hashlib.sha256(row["body"]).hexdigest() == line["bodySha256"]
    assert len(report.files) == len({(row["topic"], row["dt"]) for row in rows})


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_second_run_exports_only_what_is_new(tmp_path: Path, file_format: str) -> None:
    """And a third, with nothing new, writes nothing; the tables have one commit a run."""
    stores = [make_store(tmp_path / name, {"orders": 30, "few": 3}) for name in ("one", "two")]
    first = export(SPARK, stores, tmp_path / "out", format=file_format)
    make_store(stores[1], {"orders": 10, "new": 5})
    second = export(SPARK, stores, tmp_path / "out", format=file_format)
    third = export(SPARK, stores, tmp_path / "out", format=file_format)
    rows = rows_of(tmp_path / "out", file_format)

    assert (first.rows, second.rows, third.rows) == (66, 15, 0)
    assert third.files == () and third.run == 2
    assert len({(row["store"], *place(row)) for row in rows}) == len(rows) == 81
    assert {row["store"] for row in rows} == {str(store) for store in stores}
    assert not (tmp_path / "out" / "_penstock" / "staging").exists()
    if file_format == "delta":
        from deltalake import DeltaTable

        assert DeltaTable(str(tmp_path / "out")).version() == 2  # made, and two runs


def test_spark_reads_the_directory_as_a_table(spark: Any, tmp_path: Path) -> None:
    """With real tasks; topic and day are columns, names that no path can have come back."""
    store = golden_store("lmq")
    names = ["%RETRY%group", "plain"]
    made = make_store(tmp_path / "store", {"plain": 5})
    with MessageStore.open(made) as opened:
        opened.create_topic(names[0], 1)
        opened.put(Message(topic=names[0], queue_id=0, body=b"again"))
    export(spark, [store, made], tmp_path / "out")
    frame = spark.read.parquet(str(tmp_path / "out"))

    assert frame.count() == 35 + 6
    mine = frame.where(f"store = '{made}'")
    assert sorted(row.topic for row in mine.select("topic").distinct().collect()) == names
    wanted = spark.read.format("penstock").load(str(made)).select("topic", "queueOffset", "body")
    assert mine.select("topic", "queueOffset", "body").exceptAll(wanted).count() == 0
    assert dict(frame.dtypes)["dt"] == "date"
    light = golden_dump("lmq")
    topic = next(line["topic"] for line in light if line.get("topic", "").startswith("%LMQ%"))
    assert export(spark, store, tmp_path / "light", topics=[topic]).rows > 0


def test_files_are_as_large_as_asked_for_and_sorted(tmp_path: Path) -> None:
    """A topic smaller than one file gives one, a larger one as many as it takes."""
    report = export(SPARK, golden_store("basic"), tmp_path / "out", file_bytes=100_000)
    sizes: dict[str, list[int]] = {}
    for path in report.files:
        table = pq.ParquetFile(tmp_path / "out" / path).read()
        keys = list(
            zip(*(table[name].to_pylist() for name in ("queueId", "queueOffset")), strict=True)
        )
        assert keys == sorted(keys)
        sizes.setdefault(path.partition("/")[0], []).append(sum(table["size"].to_pylist()))
    assert len(sizes["topic=few"]) == 1
    assert all(max(mine) < 2 * 100_000 for mine in sizes.values())
    assert all(len(mine) == max(1, round(sum(mine) / 100_000)) for mine in sizes.values())
    assert max(len(mine) for mine in sizes.values()) > 2

    few = export(SPARK, golden_store("basic"), tmp_path / "few", max_records_per_file=100)
    counts = [pq.ParquetFile(tmp_path / "few" / path).metadata.num_rows for path in few.files]
    assert max(counts) == 100 and sum(counts) == few.rows
    assert places(rows_of(tmp_path / "few")) == places(rows_of(tmp_path / "out"))


def test_days_are_those_of_the_store_even_when_its_clock_went_back(tmp_path: Path) -> None:
    clock = SetClock()
    for shift in (0, DAY_MS, 5 * DAY_MS, 4 * DAY_MS, 5 * DAY_MS + 1):
        clock.ms = NOON_MS + shift
        make_store(tmp_path / "store", {"orders": 10}, clock)
    report = export(SPARK, tmp_path / "store", tmp_path / "out")
    rows = rows_of(tmp_path / "out")

    assert report.rows == len(rows) == 50
    assert len(report.files) <= 8
    first = datetime.fromtimestamp(NOON_MS / 1000, UTC).date().toordinal()
    days = [date.fromordinal(first + shift).isoformat() for shift in (0, 1, 4, 5)]
    assert sorted({row["dt"] for row in rows}) == days
    for row in rows:
        assert row["dt"] == row["storeTimestamp"].date().isoformat()


def test_times_choose_and_the_rest_comes_later(tmp_path: Path) -> None:
    clock = SetClock()
    for day in range(4):
        clock.ms = NOON_MS + day * DAY_MS
        make_store(tmp_path / "store", {"orders": 10, f"day{day}": 1}, clock)
    out = tmp_path / "out"
    since = datetime.fromtimestamp(NOON_MS / 1000 + 86_400, UTC)
    middle = export(SPARK, tmp_path / "store", out, since=since, until=NOON_MS + 3 * DAY_MS)
    one = export(SPARK, tmp_path / "store", out, topics=["day0"])
    matching = export(SPARK, tmp_path / "store", out, pattern="ord.*")
    rest = export(SPARK, tmp_path / "store", out)

    assert (middle.rows, one.rows, matching.rows, rest.rows) == (22, 1, 20, 1)
    rows = rows_of(out)
    assert len(set(places(rows))) == len(rows) == 44
    manifest = json.loads((out / "_penstock" / "manifest.json").read_text())
    orders = next(each for each in manifest["exported"] if each["topic"] == "orders")
    assert orders["queues"] == {"0": [[0, 20]], "1": [[0, 20]]}


def test_bodies_are_left_out_on_wish(tmp_path: Path) -> None:
    export(SPARK, golden_store("slow"), tmp_path / "out", body=False)

    assert "body" not in rows_of(tmp_path / "out")[0]
    with pytest.raises(InvalidOption, match="other columns"):
        export(SPARK, golden_store("slow"), tmp_path / "out")


def test_damaged_records_are_left_out_and_named(tmp_path: Path) -> None:
    store = golden_copy("basic", tmp_path)
    line = break_a_body(store, "basic")
    report = export(SPARK, store, tmp_path / "out")

    assert report.damaged_count == 1
    assert place(report.damaged[0]) == place(line)
    assert "CRC" in report.damaged[0]["_corrupt"]
    assert places(rows_of(tmp_path / "out")) == sorted(stored("basic").keys() - {place(line)})
    assert export(SPARK, store, tmp_path / "out").damaged_count == 0


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it, and nothing cleans up after it."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("file_format", "step"),
    steps_to_try(
        [
            (file_format, step)
            for file_format in FORMATS
            for step in ("written", "save-0", "rename-1", "move_in-0", "commit-0", "save-1")
            if (file_format, step) != ("parquet", "commit-0")
        ],
        7,
    ),
)
def test_a_run_that_is_killed_counts_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: str, step: str, when: str
) -> None:
    """At each step, before it and after it; the next run leaves every message there once."""
    store = make_store(tmp_path / "store", {"orders": 30, "few": 3})
    out = tmp_path / "out"
    export(SPARK, store, out, format=file_format, topics=["few"])
    make_store(store, {"orders": 10, "few": 3, "new": 1})
    with monkeypatch.context() as patch:
        die_at(patch, file_format, step, when)
        with pytest.raises(Killed):
            export(SPARK, store, out, format=file_format)
    again = export(SPARK, store, out, format=file_format)
    rows = rows_of(out, file_format)

    assert len(set(places(rows))) == len(rows) == 47
    assert again.rows in (0, 44)
    assert not (out / "_penstock" / "staging").exists()
    on_disk = {path.name for path in out.glob("topic=*/dt=*/*.parquet")}
    assert (
        sum(pq.ParquetFile(path).metadata.num_rows for path in out.glob("topic=*/*/*.parquet"))
        == 47
    )
    assert len(on_disk) == 4
    assert export(SPARK, store, out, format=file_format).rows == 0


def die_at(patch: pytest.MonkeyPatch, file_format: str, step: str, when: str) -> None:
    name, _, number = step.partition("-")
    owner: Any
    if name == "written":
        from pipeline.jobs.export import write as export_write

        owner, name = export_write, "write_files"
    elif name == "save":
        owner = export_manifest.Manifest
    elif name == "rename":
        owner = Path
    elif name == "move_in":
        owner = export_targets
    elif file_format == "delta":
        from deltalake import DeltaTable

        owner, name = DeltaTable, "create_write_transaction"
    else:
        from pyiceberg.table import Table

        owner, name = Table, "add_files"
    real: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1 << 20))

    def dying(*given: Any, **named: Any) -> Any:
        now = next(calls) == int(number or 0)
        if now and when == "before":
            raise Killed
        result = real(*given, **named)
        if now:
            raise Killed
        return result

    patch.setattr(owner, name, dying)


def test_what_retention_took_before_it_was_exported_is_an_error(tmp_path: Path) -> None:
    """Unless an option says that it does not matter."""
    store = golden_store("cleaned")
    everything = export(SPARK, store, tmp_path / "out").rows
    path = tmp_path / "out" / "_penstock" / "manifest.json"
    document = json.loads(path.read_text())
    for topic in document["exported"]:
        for ranges in topic["queues"].values():
            ranges[:] = [[0, ranges[0][0] - 5]] if ranges[0][0] > 5 else ranges
    path.write_text(json.dumps(document))

    with pytest.raises(DataLost, match="have been removed"):
        export(SPARK, store, tmp_path / "out")
    assert 0 < export(SPARK, store, tmp_path / "out", fail_on_data_loss=False).rows <= everything


def test_what_cannot_be_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("slow")
    refused: list[tuple[str, str, dict[str, Any]]] = [
        ("means nothing for format 'parquet'", "e", {"catalog": "sqlite:///x"}),
        ("NAMESPACE.TABLE", "f", {"format": "iceberg", "table": "messages"}),
        ("is 1 at least", "g", {"file_bytes": 0}),
        ("not on this machine", "s3://bucket/x", {}),
    ]
    for told, to, given in refused:
        with pytest.raises(InvalidOption, match=told):
            export(SPARK, store, to if "://" in to else tmp_path / "new" / to, **given)
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InvalidOption, match="something else"):
        export(SPARK, store, tmp_path / "full")
    export(SPARK, store, tmp_path / "out")
    with pytest.raises(InvalidOption, match="format 'parquet'"):
        export(SPARK, store, tmp_path / "out", format="delta")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(PipelineError, match="with its extra lakehouse"):
        export(SPARK, store, tmp_path / "new", format="delta")


def test_another_store_at_the_same_path_is_noticed(tmp_path: Path) -> None:
    make_store(tmp_path / "store", {"orders": 5})
    export(SPARK, tmp_path / "store", tmp_path / "out")
    (tmp_path / "store").rename(tmp_path / "old")
    make_store(tmp_path / "store", {"orders": 9})

    with pytest.raises(InvalidOption, match="another store"):
        export(SPARK, tmp_path / "store", tmp_path / "out")


def test_a_store_that_was_renamed_is_exported_once(tmp_path: Path) -> None:
    """A store is known by its id: the next run writes what is new, and nothing again."""
    make_store(tmp_path / "store", {"orders": 10})
    export(SPARK, tmp_path / "store", tmp_path / "out")
    (tmp_path / "store").rename(tmp_path / "renamed")
    again = export(SPARK, tmp_path / "renamed", tmp_path / "out")
    make_store(tmp_path / "renamed", {"orders": 4})
    later = export(SPARK, tmp_path / "renamed", tmp_path / "out")

    assert (again.rows, later.rows) == (0, 4)
    assert len(set(places(rows_of(tmp_path / "out")))) == 14
    assert len(rows_of(tmp_path / "out")) == 14


def test_a_topic_made_again_is_an_error_or_begins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queue offsets count from 0 again: what the manifest has of the deleted one is not of it."""
    store, out = make_store(tmp_path / "store", {"orders": 10, "other": 2}), tmp_path / "out"
    export(SPARK, store, out)
    with MessageStore.open(store) as opened:
        opened.delete_topic("orders")
    make_store(store, {"orders": 15})

    with pytest.raises(DataLost, match=r"'orders'.*deleted and created again"):
        export(SPARK, store, out)
    assert len(rows_of(out)) == 12
    assert export(SPARK, store, out, fail_on_data_loss=False).rows == 15
    assert caplog.text.count("'orders'") == 1
    make_store(store, {"orders": 2})
    assert export(SPARK, store, out).rows == 2
    assert len({row["physicalOffset"] for row in rows_of(out)}) == len(rows_of(out)) == 29


def test_the_command_prints_json_and_exits_by_what_it_finds(spark: Any, tmp_path: Path) -> None:
    """0, 7 where damaged messages were left out, 2 for a wrong option, 4 for no store."""
    from cli.main import app

    runner = CliRunner()
    slow, out = str(golden_store("slow")), str(tmp_path / "out")
    made = runner.invoke(app, ["job", "export", slow, "--to", out, "--since", "1000", "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["messages"] == len(stored("slow"))
    broken = golden_copy("slow", tmp_path)
    break_a_body(broken, "slow")
    assert runner.invoke(app, ["job", "export", str(broken), "--to", f"{out}2"]).exit_code == 7
    assert (
        runner.invoke(app, ["job", "export", slow, "--to", f"{out}3", "--topic", "x"]).exit_code
        == 2
    )
    assert runner.invoke(app, ["job", "export", str(tmp_path), "--to", f"{out}4"]).exit_code == 4


def test_a_copy_beside_its_store_is_refused(tmp_path: Path) -> None:
    """Both have one id, and may have gone apart since: the rows of one would be taken for the other's."""
    make_store(tmp_path / "store", {"orders": 5})
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with pytest.raises(PipelineError, match="name one of them"):
        export(SPARK, [tmp_path / "store", tmp_path / "copy"], tmp_path / "out")
    export(SPARK, tmp_path / "store", tmp_path / "out")
    with pytest.raises(InvalidOption, match="a copy of"):
        export(SPARK, tmp_path / "copy", tmp_path / "out")
