"""dump and doctor on directories that no service has open."""

from __future__ import annotations

from pathlib import Path

import pytest
from flips import flip
from golden import GOLDEN, golden_copy, golden_store
from run_cli import json_lines, penstock

from cli.failures import ExitCode


def snapshot(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file, to see that nothing was touched."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
    }


def test_dump_prints_json_lines_of_every_kind() -> None:
    """With --json a dump of a broker's store has a line for each thing it holds."""
    result = penstock("dump", golden_store("slow"), "--json")
    kinds = [line["type"] for line in json_lines(result)]

    assert result.exit_code == ExitCode.DONE, result.stderr
    assert kinds.count("message") == 24
    assert set(kinds) >= {
        "topic",
        "consumerOffsets",
        "delayOffsets",
        "groups",
        "queue",
        "commitlog",
    }


def test_dump_for_people_is_one_line_a_thing() -> None:
    """Without --json there are as many lines, each beginning with its kind, and none is cut."""
    lines = json_lines(penstock("dump", golden_store("slow"), "--json"))
    human = penstock("dump", golden_store("slow")).stdout.splitlines()

    assert [line.split()[0] for line in human] == [line["type"] for line in lines]
    for shown, line in zip(human, lines, strict=True):
        assert all(str(value) in shown for value in line.values())
    assert max(map(len, human)) > 160


def test_doctor_finds_a_broker_s_clean_store_sound() -> None:
    """A sound store is exit code 0 and no damage."""
    result = penstock("doctor", golden_store("slow"), "--json")

    assert result.exit_code == ExitCode.DONE, result.stdout
    assert "damage" not in {finding["severity"] for finding in json_lines(result)}


def test_a_broker_s_settings_are_read_from_a_file(tmp_path: Path) -> None:
    """--spec takes the golden stores' own files; one that is not JSON is a usage error."""
    bad = tmp_path / "spec.json"
    bad.write_text("{")

    good = penstock("dump", golden_store("slow"), "--spec", GOLDEN / "slow.spec.json", "--json")
    assert good.exit_code == ExitCode.DONE, good.stderr
    refused = penstock("dump", golden_store("slow"), "--spec", bad, "--json")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (ExitCode.USAGE, 1)


def test_doctor_says_which_record_is_damaged(tmp_path: Path) -> None:
    """A flipped bit in a body is found: exit code 7, and a finding that is damage."""
    store = golden_copy("basic", tmp_path)
    log = sorted((store / "commitlog").iterdir())[0]
    flip(log, 100)
    result = penstock("doctor", store, "--json")

    assert result.exit_code == ExitCode.DAMAGED
    assert "damage" in {finding["severity"] for finding in json_lines(result)}
    assert penstock("doctor", store).exit_code == ExitCode.DAMAGED


def test_a_repair_says_where_it_kept_what_it_changed(tmp_path: Path) -> None:
    """A dry run names the files; the repair is exit code 0, and so is the doctor after it."""
    store = golden_copy("torn/no-consumequeue", tmp_path)
    before = snapshot(store)

    dry = penstock("doctor", store, "--repair", "--dry-run", "--json")
    assert snapshot(store) == before
    [plan] = json_lines(dry)
    assert "checkpoint" in plan["kept"] and plan["directory"] == ""
    assert {finding["kind"] for finding in plan["found"]} >= {"queue-file-missing"}

    result = penstock("doctor", store, "--repair")
    assert result.exit_code == ExitCode.DONE, result.stderr
    assert "the store is whole" in result.stdout
    [kept] = store.glob("repair-*")
    assert str(kept) in result.stdout
    again = penstock("doctor", store, "--repair", "--json")
    assert json_lines(again)[0]["found"] == []
    assert "nothing was changed" in penstock("doctor", store, "--repair").stdout
    assert penstock("doctor", store, "--dry-run").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("command", ["dump", "doctor"])
def test_a_store_is_left_as_it_was(tmp_path: Path, command: str) -> None:
    """Offline commands change no file, not even of a store whose broker was killed."""
    store = golden_copy("killed", tmp_path)
    before = snapshot(store)
    penstock(command, store, "--json")

    assert snapshot(store) == before


@pytest.mark.parametrize("command", ["dump", "doctor"])
def test_what_is_not_a_store_is_one_line_and_exit_code_4(tmp_path: Path, command: str) -> None:
    """A missing directory, a file and an empty directory are refused alike."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no store")
    for name in ("missing", "empty", "file"):
        result = penstock(command, tmp_path / name)
        assert result.exit_code == ExitCode.NOT_A_STORE, (name, result.stderr)
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
