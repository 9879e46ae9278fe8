"""The commands of jobs that write stores: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flips import flip
from golden import golden_copy, golden_dump, golden_store
from new_stores import assert_in_order, messages_of
from typer.testing import CliRunner

from cli.main import app


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["job", *map(str, arguments)])


def values(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_merge_and_split_there_and_back(spark: Any, tmp_path: Path) -> None:
    """One JSON line a store; a store that exists is not touched."""
    store = golden_store("basic")
    parts = run("split", store, "--to", tmp_path / "parts", "--json")
    assert parts.exit_code == 0, parts.output
    made = values(parts)
    assert {Path(each["store"]).name for each in made} == {
        line["topic"] for line in golden_dump("basic") if line["type"] == "message"
    }
    back = run("merge", *(each["store"] for each in made), "--to", tmp_path / "back", "--json")
    assert back.exit_code == 0, back.output
    (one,) = values(back)
    assert one["records"] == sum(each["records"] for each in made)
    assert one["renumbered"] == one["droppedOffsets"] == []
    assert (tmp_path / "back/commitlog/00000000000000000000").read_bytes() == (
        store / "commitlog/00000000000000000000"
    ).read_bytes()
    assert_in_order(tmp_path / "back")
    again = run("merge", store, "--to", tmp_path / "back")
    assert again.exit_code == 2 and "exists" in again.output


def test_damage_is_reported_and_ends_with_7(spark: Any, tmp_path: Path) -> None:
    store = golden_copy("basic", tmp_path)
    log = store / "commitlog" / "00000000000000000000"
    flip(log, 8)  # the body's CRC of the first record
    told = run("merge", store, "--to", tmp_path / "new", "-q")
    assert told.exit_code == 7 and "left out" in told.stdout
    as_json = run("compact", store, "--to", tmp_path / "less", "--json")
    assert as_json.exit_code == 7
    assert [value["begin"] for value in values(as_json) if "begin" in value] == [0]


def test_compact_and_replay(spark: Any, tmp_path: Path) -> None:
    store = golden_store("basic")
    left = run(
        "compact", store, "--to", tmp_path / "less", "--topics", "orders,few", "--keyless", "drop",
        "--json",
    )  # fmt: skip
    assert left.exit_code == 0, left.output
    counts, made = values(left)
    assert counts["records"] == made["records"] == len(messages_of(tmp_path / "less"))
    times = sorted(m["storeTimestamp"] for m in messages_of(store) if m["topic"] == "orders")
    again = run(
        "replay", store, "orders", "--to", tmp_path / "again", "--until", str(times[10]), "-q"
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    copies = messages_of(tmp_path / "again")
    assert len(copies) == sum(time < times[10] for time in times)
    assert all("REPLAY_OF" in copy["properties"] for copy in copies)
