"""Jobs: what they write is a broker's own, and what they find is what was broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import CLEAN, KILLED, golden_copy, golden_dump, golden_store
from typer.testing import CliRunner

from pipeline import audit, rebuild
from pipeline.errors import NotAStore, PipelineError

SMALL = 1 << 17  # several pieces of each small store

DERIVABLE = (*sorted(set(CLEAN) - {"ext", "cleaned"}), "killed", "poolkilled")
"""Stores whose queues follow from the log alone: no extension file, no removed records."""


def files_of(directory: Path) -> dict[str, bytes]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def break_a_body(store: Path, name: str) -> dict[str, Any]:
    """Flip a bit in a body in the middle of the store; return the broker's line of its message."""
    lines = [line for line in golden_dump(name) if line["type"] == "message"]
    line = sorted(
        (line for line in lines if line["bodyLength"]), key=lambda line: line["commitLogOffset"]
    )[len(lines) // 2]
    for log in sorted((store / "commitlog").iterdir(), reverse=True):
        if int(log.name) <= line["commitLogOffset"]:
            data = bytearray(log.read_bytes())
            data[line["commitLogOffset"] - int(log.name) + 88] ^= 1  # behind two IPv4 hosts
            log.write_bytes(data)
            return line
    raise AssertionError("no log file")


@pytest.mark.parametrize("name", DERIVABLE)
def test_rebuilt_queues_are_the_brokers_byte_for_byte(
    spark: Any, tmp_path: Path, name: str
) -> None:
    store = golden_store(name)
    report = rebuild(spark, store, tmp_path / "queues", piece_bytes=SMALL)

    assert not report.holes and not report.gaps
    assert files_of(tmp_path / "queues") == files_of(store / "consumequeue")


def test_rebuilding_a_cleaned_store_begins_where_its_log_does(spark: Any, tmp_path: Path) -> None:
    """Units of removed records are a broker's placeholders; all others are as they were."""
    store = golden_store("cleaned")
    report = rebuild(spark, store, tmp_path / "queues")
    theirs = files_of(store / "consumequeue")

    assert report.units == report.records == 920
    for name, data in files_of(tmp_path / "queues").items():
        ours = np.frombuffer(data, "S20")
        placed = np.frombuffer(data, [("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])
        real = placed["size"] != 0x7FFFFFFF
        assert (ours[real] == np.frombuffer(theirs[name], "S20")[real]).all()


def test_rebuild_refuses_a_target_that_exists(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="exists"):
        rebuild(spark, golden_store("slow"), tmp_path)


def test_rebuild_points_units_of_damaged_records_at_the_damage(spark: Any, tmp_path: Path) -> None:
    """Later messages keep their queue offsets; the report names the hole."""
    store = golden_copy("basic", tmp_path)
    line = break_a_body(store, "basic")
    before = files_of(store / "consumequeue")
    report = rebuild(spark, store, tmp_path / "queues", piece_bytes=SMALL)
    after = files_of(tmp_path / "queues")

    key = (line["topic"], line["queueId"])
    at = line["queueOffset"]
    hole = (line["commitLogOffset"], line["commitLogOffset"] + line["size"])
    assert [hole[:2] for hole in report.holes] == [hole]
    assert report.gaps == ((key, at, at + 1),)
    differing = [
        (name, place)
        for name in before
        for place in range(len(before[name]) // 20)
        if before[name][20 * place : 20 * place + 12] != after[name][20 * place : 20 * place + 12]
    ]
    assert differing == []


@pytest.mark.parametrize("name", CLEAN + KILLED)
def test_audit_finds_nothing_wrong_with_a_brokers_store(spark: Any, name: str) -> None:
    report = audit(spark, golden_store(name), piece_bytes=SMALL)

    assert report.findings == ()
    assert report.records > 0


def test_audit_names_a_flipped_bit_a_wrong_unit_and_a_wrong_index_entry(
    spark: Any, tmp_path: Path
) -> None:
    """Three faults of three kinds are found, each with its place."""
    store = golden_copy("basic", tmp_path)
    line = break_a_body(store, "basic")
    unit = store / "consumequeue" / "few" / "0" / "00000000000000000000"
    units = bytearray(unit.read_bytes())
    units[20 + 11] ^= 1
    unit.write_bytes(units)
    index = next((store / "index").iterdir())
    with index.open("r+b") as file:
        from pipeline.index_files import slot_count_of
        from pipeline.store_files import StoreFiles

        place = 40 + 4 * slot_count_of(StoreFiles.open(store), str(index)) + 20 * 7
        file.seek(place)
        first = file.read(1)[0]
        file.seek(place)
        file.write(bytes([first ^ 1]))

    found = audit(spark, store).findings
    kinds = {finding["kind"] for finding in found}
    assert kinds == {"record", "unit", "index"}
    wrong = [f for f in found if f["kind"] == "unit" and f.get("topic") == "few"]
    assert [finding["queueOffset"] for finding in wrong] == [1]
    damaged = [finding for finding in found if finding["kind"] == "record"]
    assert [finding["physicalOffset"] for finding in damaged] == [line["commitLogOffset"]]
    hit = [f for f in found if f["problem"] == "its record is damaged"]
    assert [(f["topic"], f["queueOffset"]) for f in hit] == [(line["topic"], line["queueOffset"])]


def test_audit_of_something_else_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="commitlog"):
        audit(spark, tmp_path)


def test_the_commands_print_json_and_exit_by_what_they_find(spark: Any, tmp_path: Path) -> None:
    """0 for a store in order, 7 for one that is not, 4 for no store."""
    from cli.main import app

    runner = CliRunner()
    good = runner.invoke(app, ["job", "audit", str(golden_store("slow")), "--json"])
    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout.splitlines()[-1])["findings"] == 0

    broken = golden_copy("slow", tmp_path)
    break_a_body(broken, "slow")
    assert runner.invoke(app, ["job", "audit", str(broken), "--json"]).exit_code == 7
    assert runner.invoke(app, ["job", "audit", str(tmp_path / "none")]).exit_code == 4
    target = str(tmp_path / "queues")
    made = runner.invoke(app, ["job", "rebuild", str(golden_store("slow")), target, "--json"])
    assert made.exit_code == 0
    assert json.loads(made.stdout)["units"] == 24
