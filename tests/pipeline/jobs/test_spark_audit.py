"""Audits: what they find is what was broken, each in its place, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from broken_stores import break_a_body
from engine_store import small_config
from flips import flip
from golden import CLEAN, KILLED, golden_copy, golden_store
from local_spark import LocalSpark
from typer.testing import CliRunner

from pipeline import audit, audit_stores
from pipeline.errors import InvalidOption
from storage import Message, MessageStore
from storage.offline import doctor
from storage.view.store_view import StoreView

SPARK: Any = LocalSpark()
SMALL = 1 << 17  # several pieces of each small store


NOT_OF_AN_AUDIT = {"group-offset"}  # what doctor looks at besides
AT_REST = [
    "as-left", "no-abort-torn", "zeroed-tail", "flip-last-queue-offset", "flip-early-magic", "flip-near-end-body",
    "stale-tail", "no-consumequeue", "no-index", "garbage-checkpoint", "short-checkpoint", "lost-first-consumequeue-file",
    "short-consumequeue-file", "torn-consumequeue-unit", "lost-middle-commitlog-file", "no-config", "garbage-offsets",
]  # fmt: skip


@pytest.mark.parametrize("name", CLEAN + KILLED)
def test_nothing_is_wrong_with_a_brokers_store(name: str) -> None:
    report = audit(SPARK, golden_store(name), piece_bytes=SMALL)

    assert report.findings == () and report.finding_count == 0
    assert report.records > 0


def places(lines: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(
        str([line.get(name) for name in ("severity", "kind", "file", "begin", "end")])
        for line in lines
    )


def test_an_audit_over_partitions_finds_what_doctor_finds(tmp_path: Path) -> None:
    """The same in the same places, for every variant of a damaged store that nobody has open."""
    stores = [golden_copy(f"torn/{name}", tmp_path) for name in AT_REST]
    for store in stores:
        (store / "abort").unlink(missing_ok=True)

    reports = audit_stores(SPARK, stores, limit=10_000, piece_bytes=SMALL)

    for store, report in zip(stores, reports, strict=True):
        wanted = [
            line
            for line in doctor(store)
            if line["severity"] in ("warning", "damage") and line["kind"] not in NOT_OF_AN_AUDIT
        ]
        assert places(report.findings) == places(wanted), store.name
    assert sum(report.finding_count == 0 for report in reports) < 4


def break_three_things(store: Path) -> dict[str, Any]:
    """Flip a bit in a body, in a unit and in an index entry; return the line of the damaged message."""
    line = break_a_body(store, "basic")
    unit = store / "consumequeue" / "few" / "0" / "00000000000000000000"
    flip(unit, 20 + 11)
    index = min((store / "index").iterdir())
    flip(index, 40 + 4 * StoreView.open(store).index_files()[0].slot_count + 20 * 7)
    return line


def test_a_flipped_bit_a_wrong_unit_and_a_wrong_index_entry_are_named(tmp_path: Path) -> None:
    """Three faults of three kinds are found, each with its place."""
    store = golden_copy("basic", tmp_path)
    line = break_three_things(store)

    found = audit(SPARK, store).findings
    places = {finding["kind"]: (finding["file"], finding.get("begin")) for finding in found}
    assert places == {
        "log-record": ("commitlog/00000000000000262144", line["commitLogOffset"]),
        "queue-record": (f"consumequeue/{line['topic']}/{line['queueId']}", line["queueOffset"]),
        "queue-unit": ("consumequeue/few/0/00000000000000000000", 1),
        "index-entries": (f"index/{min((store / 'index').iterdir()).name}", None),
    }
    without = audit(SPARK, store, index=False).findings
    assert without == tuple(finding for finding in found if finding["kind"] != "index-entries")


def test_all_findings_become_rows_however_few_are_named(spark: Any, tmp_path: Path) -> None:
    """The count stays exact when few are named; rows say which store they are about."""
    names = ["lost-middle-commitlog-file", "no-checkpoint"]
    stores = [golden_store("torn") / name for name in names]
    reports = audit_stores(spark, stores, limit=2, findings_to=tmp_path / "rows", piece_bytes=SMALL)
    rows = [
        json.loads(line)
        for path in (tmp_path / "rows").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]

    assert [len(report.findings) for report in reports] == [2, 1]
    assert reports[0].finding_count > 5
    for store, report in zip(stores, reports, strict=True):
        assert sum(row["store"] == str(store) for row in rows) == report.finding_count
    frame = spark.read.json(str(tmp_path / "rows"))
    assert frame.count() == len(rows)
    with pytest.raises(InvalidOption, match="findings"):
        audit_stores(spark, stores, findings_to=tmp_path / "rows")


def test_a_store_that_is_written_to_is_in_order(tmp_path: Path) -> None:
    """Dispatch and indexer lag, files roll, entries are half put: none of it is damage."""
    config = small_config(index_slot_count=100, index_entry_count=400)
    with MessageStore.open(tmp_path / "store", config) as store:
        store.create_topic("orders", 2)
        stopping = Event()

        def put() -> None:
            number = 0
            while not stopping.is_set():
                message = Message(
                    topic="orders", queue_id=number % 2, body=b"x", keys=(f"k{number % 300}",)
                )
                store.put(message)
                number += 1
                if number % 20 == 0:  # bursts, and fewer in all than an audit reads meanwhile
                    stopping.wait(0.01)

        thread = Thread(target=put)
        thread.start()
        try:
            reports = [audit(SPARK, tmp_path / "store") for _ in range(15)]
        finally:
            stopping.set()
            thread.join()
    assert [report.findings for report in reports] == [()] * 15
    assert reports[-1].records > reports[0].records


def test_the_command_prints_json_and_exits_by_what_it_finds(spark: Any, tmp_path: Path) -> None:
    """0 for a store in order, 7 for one that is not, 4 for no store, 2 for a wrong option."""
    from cli.main import app

    runner = CliRunner()
    good = runner.invoke(app, ["job", "audit", str(golden_store("slow")), "--json"])
    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout.splitlines()[-1])["findings"] == 0

    broken = golden_copy("slow", tmp_path)
    break_a_body(broken, "slow")
    both = [str(broken), str(golden_store("basic"))]
    told = runner.invoke(app, ["job", "audit", *both, "--json", "--limit", "1"])
    assert told.exit_code == 7
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line.get("findings", "a finding") for line in lines][::2] == ["a finding", 0]
    assert lines[1]["findings"] > 1
    assert runner.invoke(app, ["job", "audit", str(tmp_path / "none")]).exit_code == 4
    taken = ["job", "audit", str(broken), "--findings", str(tmp_path)]
    assert runner.invoke(app, taken).exit_code == 2
