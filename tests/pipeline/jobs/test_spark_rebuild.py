"""Rebuilt queues and index files: a broker's own, in a new directory or in the place of the old."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken_stores import break_a_body
from engine_store import small_config
from golden import CLEAN, TORN, golden_copy, golden_store
from local_spark import LocalSpark
from new_stores import files_of
from steps_to_try import steps_to_try
from typer.testing import CliRunner

from pipeline import audit, rebuild, rebuild_stores
from pipeline.errors import PipelineError, StoreLocked
from storage import Message, MessageStore, StoreConfig
from storage.files.directory_lock import is_in_use
from storage.stopped.locks import stopped_store

SPARK: Any = LocalSpark()
SMALL = 1 << 17  # several pieces of each small store

DERIVABLE = (*sorted(set(CLEAN) - {"ext", "cleaned"}), "killed", "poolkilled")
"""Stores whose queues follow from the log alone: no extension file, no removed records."""

RECOVERED = ("killed-recovered",)
"""Stores whose broker put the last record's keys into the index twice."""


def contents(directory: Path) -> list[bytes]:
    """Files in order, whatever they are called."""
    return [data for _, data in sorted(files_of(directory).items())]


@pytest.mark.parametrize("name", steps_to_try(list(DERIVABLE), 4))
def test_rebuilt_files_are_the_brokers_byte_for_byte(tmp_path: Path, name: str) -> None:
    """Index files have names of their own: a broker's are by its clock."""
    store = golden_store(name)
    report = rebuild(SPARK, store, tmp_path / "new", piece_bytes=SMALL)

    assert not report.damage and not report.gaps
    assert files_of(tmp_path / "new" / "consumequeue") == files_of(store / "consumequeue")
    ours, theirs = contents(tmp_path / "new" / "index"), contents(store / "index")
    if name in RECOVERED:
        assert (len(ours), ours[:-1]) == (len(theirs), theirs[:-1])
    else:
        assert ours == theirs
    assert report.index_files == len(theirs)


@pytest.mark.parametrize("entries", steps_to_try([2, 3, 4, 9, 10, 25, 49, 50], 3))
def test_index_files_are_those_of_our_indexer_whatever_their_size(
    tmp_path: Path, entries: int
) -> None:
    """A file that the last key fills has a successor only if another record follows."""
    config = small_config(index_slot_count=7, index_entry_count=entries)
    with MessageStore.open(tmp_path / "store", config) as store:
        store.create_topic("orders", 1)
        for number in range(24):
            keys = (f"k{number}",) if number % 3 else ()
            store.put(Message(topic="orders", queue_id=0, body=b"x", keys=keys))
    rebuild(SPARK, tmp_path / "store", tmp_path / "new", piece_bytes=1000)

    assert contents(tmp_path / "new" / "index") == contents(tmp_path / "store" / "index")
    assert files_of(tmp_path / "new" / "consumequeue") == files_of(
        tmp_path / "store" / "consumequeue"
    )


def test_rebuilding_a_cleaned_store_begins_where_its_log_does(tmp_path: Path) -> None:
    """Units of removed records are a broker's placeholders; all others are as they were."""
    store = golden_store("cleaned")
    report = rebuild(SPARK, store, tmp_path / "new", what="queues")
    theirs = files_of(store / "consumequeue")

    assert report.units == report.records == 920
    assert not (tmp_path / "new" / "index").exists()
    for name, data in files_of(tmp_path / "new" / "consumequeue").items():
        ours = np.frombuffer(data, "S20")
        placed = np.frombuffer(data, [("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])
        real = placed["size"] != 0x7FFFFFFF
        assert (ours[real] == np.frombuffer(theirs[name], "S20")[real]).all()


def test_units_of_damaged_records_point_at_the_damage(tmp_path: Path) -> None:
    """Later messages keep their queue offsets; the report names the hole."""
    store = golden_copy("basic", tmp_path)
    line = break_a_body(store, "basic")
    before = files_of(store / "consumequeue")
    report = rebuild(SPARK, store, tmp_path / "new", piece_bytes=SMALL)

    key = (line["topic"], line["queueId"])
    at = line["queueOffset"]
    hole = (line["commitLogOffset"], line["commitLogOffset"] + line["size"])
    assert [(found.begin_offset, found.end_offset) for found in report.damage] == [hole]
    assert report.gaps == ((key, at, at + 1),)
    assert files_of(tmp_path / "new" / "consumequeue") == before


KEYS_OF_DAMAGED_BODIES = ("flip-early-body", "flip-near-end-body")
"""Our indexer does not read bodies, so it indexes these; the job leaves damaged records out."""


@pytest.mark.parametrize("variant", steps_to_try(list(TORN), 6))
def test_in_place_a_damaged_store_gets_the_files_that_recovery_makes(
    tmp_path: Path, variant: str
) -> None:
    """What recovery does when a writer starts and what the job does with a cluster is one thing."""
    shape = {"index_slot_count": 500, "index_entry_count": 2_000, "consume_queue_file_size": 6_000}
    for name in ("rebuilt", "recovered"):
        (tmp_path / name).mkdir()
    ours = golden_copy(f"torn/{variant}", tmp_path / "rebuilt")
    theirs = golden_copy(f"torn/{variant}", tmp_path / "recovered")
    shutil.rmtree(theirs / "index", ignore_errors=True)  # else the broker's own files are kept

    rebuild(SPARK, ours, in_place=True, piece_bytes=SMALL, **shape)
    MessageStore.open(theirs, StoreConfig(**shape)).close()

    assert files_of(ours / "consumequeue") == files_of(theirs / "consumequeue")
    if variant not in KEYS_OF_DAMAGED_BODIES:
        assert contents(ours / "index") == contents(theirs / "index")
    assert not list(ours.glob("*.rebuilt"))


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    """Records from before the deletion get no units; those of the topic made again do."""
    config = small_config(index_slot_count=100, index_entry_count=400)
    with MessageStore.open(tmp_path / "store", config) as store:
        for topic in ("gone", "again", "kept"):
            store.create_topic(topic, 1)
            for _ in range(20):
                store.put(Message(topic=topic, queue_id=0, body=b"old"))
        for topic in ("gone", "again"):
            store.writer.delete_topic(topic)
        store.create_topic("again", 1)
        for _ in range(5):
            store.put(Message(topic="again", queue_id=0, body=b"new"))
    before = files_of(tmp_path / "store" / "consumequeue")
    report = rebuild(SPARK, tmp_path / "store", in_place=True)

    assert files_of(tmp_path / "store" / "consumequeue") == before
    assert (report.records, report.units) == (65, 25)


def test_our_indexer_goes_on_from_files_rebuilt_in_place(tmp_path: Path) -> None:
    """It keeps them as they are, even where an option says that the store ended uncleanly."""
    config = small_config(index_slot_count=100, index_entry_count=40)
    with MessageStore.open(tmp_path / "store", config) as store:
        store.create_topic("orders", 1)
        for number in range(60):
            store.put(Message(topic="orders", queue_id=0, body=b"x", keys=(f"k{number}",)))
    rebuild(SPARK, tmp_path / "store", in_place=True)
    index = tmp_path / "store" / "index"
    made = {path.name: path.stat().st_ino for path in index.iterdir()}
    (tmp_path / "store" / "abort").touch()
    with MessageStore.open(tmp_path / "store", config) as store:
        assert store.writer.stopped_unclean
        store.put(Message(topic="orders", queue_id=0, body=b"x", keys=("last",)))
        for key in ("k0", "k59", "last"):
            assert store.query_by_key("orders", key).record_count == 1

    assert made.items() <= {path.name: path.stat().st_ino for path in index.iterdir()}.items()
    assert audit(SPARK, tmp_path / "store").findings == ()


def test_many_stores_are_written_by_name(tmp_path: Path) -> None:
    stores = [golden_store(name) for name in ("basic", "slow")]
    rebuild_stores(SPARK, stores, tmp_path / "new")

    for store in stores:
        made = tmp_path / "new" / store.name / "consumequeue"
        assert files_of(made) == files_of(store / "consumequeue")
    with pytest.raises(PipelineError, match="called 'basic'"):
        other = golden_copy("basic", tmp_path / "other")
        rebuild_stores(SPARK, [stores[0], other], tmp_path / "newer")


def test_a_store_in_use_is_not_rebuilt_in_place_nor_opened_meanwhile(tmp_path: Path) -> None:
    config = small_config(index_slot_count=100, index_entry_count=400)
    with MessageStore.open(tmp_path / "store", config):
        assert is_in_use(tmp_path / "store")
        with pytest.raises(StoreLocked, match="in use by a writer"):
            rebuild(SPARK, tmp_path / "store", in_place=True)
    assert not is_in_use(tmp_path / "store")
    with stopped_store(tmp_path / "store"), pytest.raises(StoreLocked):
        MessageStore.open(tmp_path / "store", config)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", steps_to_try(range(10), 4))
def test_a_job_killed_around_each_step_leaves_old_files_or_new_or_none(
    tmp_path: Path, call: int, when: str
) -> None:
    """Each directory is whole at every step, or not there; the next run leaves nothing of it."""
    store = golden_copy("torn/flip-early-body", tmp_path)
    old = {name: contents(store / name) for name in ("consumequeue", "index")}
    pid = os.fork()
    if pid == 0:
        _die_at(call, when)
        rebuild(SPARK, store, in_place=True)
        os._exit(1)
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 9
    left = {name: contents(store / name) for name in ("consumequeue", "index")}
    rebuild(SPARK, store, in_place=True)

    for name in ("consumequeue", "index"):
        assert left[name] in (old[name], contents(store / name), [])
    assert not list(store.glob("*.rebuilt"))
    assert audit(SPARK, store).finding_count == 2  # record and message


def _die_at(number: int, when: str) -> None:
    """End this process at the given one of the steps that put directories in place."""
    from pipeline.jobs.rebuild import in_place
    from pipeline.jobs.rebuild import job as rebuild_job

    steps = iter(range(1 << 20))

    def dying(function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            now = next(steps) == number
            if now and when == "before":
                os._exit(9)
            result = function(*given, **named)
            if now:
                os._exit(9)
            return result

        return call

    real = in_place.put_in_place

    def put_in_place(work: Path, directory: Path) -> None:
        for name in ("sync_tree", "sync_path"):
            setattr(in_place, name, dying(getattr(in_place, name)))
        Path.rename = dying(Path.rename)  # type: ignore[method-assign]
        in_place.shutil = type("shutil", (), {"rmtree": dying(shutil.rmtree)})  # type: ignore[assignment]
        rebuild_job.put_in_place = real  # type: ignore[attr-defined]
        real(work, directory)

    rebuild_job.put_in_place = put_in_place  # type: ignore[attr-defined]


def test_the_command_prints_json_and_exits_by_what_it_finds(spark: Any, tmp_path: Path) -> None:
    """0, 7 for a damaged log, 3 for a store in use, 2 for options that do not go together."""
    from cli.main import app

    runner = CliRunner()
    slow, target = str(golden_store("slow")), str(tmp_path / "new")
    made = runner.invoke(app, ["job", "rebuild", slow, "--to", target, "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["units"] == 24
    assert runner.invoke(app, ["job", "rebuild", slow, "--to", target]).exit_code == 2
    assert runner.invoke(app, ["job", "rebuild", slow]).exit_code == 2

    broken = golden_copy("slow", tmp_path)
    with stopped_store(broken):
        refused = runner.invoke(app, ["job", "rebuild", str(broken), "--in-place"])
        assert refused.exit_code == 3, refused.output
    break_a_body(broken, "slow")
    told = runner.invoke(app, ["job", "rebuild", str(broken), "--in-place", "-q"])
    assert told.exit_code == 7
    assert "1 damaged ranges, 1 gaps" in told.stdout
