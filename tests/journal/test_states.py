"""The writer's journal: what a stop, damage, a full and a failing disk leave of the states in it."""

from __future__ import annotations

import errno
from itertools import islice
from pathlib import Path

import pytest
from flips import flipped
from full_filesystem import full
from steps_to_try import steps_to_try

from storage.errors import StoreFull
from storage.files.filesystem import File, FileSystem
from storage.format.journal import blocks_in
from storage.journal import states as states_module
from storage.journal.states import StateJournal, read_states
from storage.testing import SimulatedDisk, every_stop

PUTS = [{"a": b"1"}, {"b": b"long " * 300}, {"a": b"2", "c": b"3"}, {"b": b""}, {"c": b"4" * 900}]


def after(count: int) -> dict[str, bytes]:
    """Return the states after some of the puts."""
    states: dict[str, bytes] = {}
    for put in PUTS[:count]:
        states |= put
    return {name: state for name, state in states.items() if state}


ALL = [after(count) for count in range(len(PUTS) + 1)]


def states_of(directory: Path) -> dict[str, bytes]:
    return read_states(FileSystem(), directory).states


@pytest.mark.parametrize("size_max", [1 << 20, 1], ids=["one generation", "a new one now and then"])
@pytest.mark.parametrize("kills", [True, False])
def test_a_stop_at_any_step_leaves_what_was_put_or_the_next_put_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_max: int, kills: bool
) -> None:
    monkeypatch.setattr(states_module, "SIZE_MAX", size_max)
    done = 0

    def work(disk: SimulatedDisk) -> None:
        nonlocal done
        done = 0
        journal = StateJournal(disk, disk.root / "journal")
        for number, put in enumerate(PUTS):
            if number == 3:
                journal.close()
                journal = StateJournal(disk, disk.root / "journal")
            journal.put(put)
            done = number + 1

    for run in every_stop(tmp_path / "runs", work, kills=kills):
        found = read_states(run.disk, run.disk.root / "journal")
        assert found.states in ALL[done : done + 2]
        assert not found.problems
        again = StateJournal(run.disk, run.disk.root / "journal")
        again.put({"d": b"5"})
        again.close()
        assert states_of(run.disk.root / "journal") == found.states | {"d": b"5"}
    assert done == len(PUTS)


@pytest.fixture(name="whole")
def _whole(tmp_path: Path) -> bytes:
    """Return a file of all puts."""
    journal = StateJournal(FileSystem(), tmp_path / "made")
    for put in PUTS:
        journal.put(put)
    journal.close()
    (path,) = (tmp_path / "made").iterdir()
    return path.read_bytes()


def test_damage_leaves_what_was_put_before_and_is_named_until_its_file_is_removed(
    tmp_path: Path, whole: bytes
) -> None:
    end = [block.end for block in blocks_in(memoryview(whole))][-1]
    directory = tmp_path / "journal"
    directory.mkdir()
    path = directory / f"{1:020d}"
    for data in steps_to_try(list(islice(flipped(whole[:end]), 0, None, 5)), 60):
        path.write_bytes(data + whole[end:])
        journal = StateJournal(FileSystem(), directory)
        kept = {name: journal.get(name) for name in journal.names("")}
        assert kept in ALL
        damaged = journal.damaged_file()
        assert (damaged is None) == (kept == ALL[-1])
        if damaged is not None:
            damaged.rename(tmp_path / damaged.name)
            assert states_of(directory) == kept
            (tmp_path / damaged.name).rename(damaged)
        journal.put({"d": b"5"})
        journal.close()
        again = StateJournal(FileSystem(), directory)
        assert again.damaged_file() == damaged
        assert states_of(directory) == kept | {"d": b"5"}
        for file in directory.iterdir():
            file.unlink()
        assert again.damaged_file() is None


@pytest.mark.parametrize("kept_size", range(0, 4000, 200))
def test_what_is_cut_off_leaves_what_was_put_before(
    tmp_path: Path, whole: bytes, kept_size: int
) -> None:
    path = tmp_path / f"{1:020d}"
    path.write_bytes(whole[:kept_size])
    found = read_states(FileSystem(), tmp_path)
    assert found.states in ALL
    assert bool(found.problems) == (found.states == {})


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = StateJournal(FileSystem(), tmp_path / "journal")

    with monkeypatch.context() as broken:
        broken.setattr(File, "allocate", full)
        with pytest.raises(StoreFull):
            journal.put({"a": b"1"})
        assert journal.get("a") == b""
    journal.put({"a": b"1"})
    with monkeypatch.context() as broken:
        broken.setattr(File, "allocate", full)
        with pytest.raises(StoreFull):
            journal.put({"a": b"2" * (1 << 17)})
        journal.put({"b": b"fits into what is reserved"})
    journal.close()
    assert states_of(tmp_path / "journal") == {"a": b"1", "b": b"fits into what is reserved"}


@pytest.mark.parametrize("call", ["pwrite", "sync"])
def test_a_put_after_an_error_begins_a_new_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    journal = StateJournal(FileSystem(), tmp_path / "journal")
    journal.put({"a": b"1"})

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(File, call, fail)
        for _ in range(2):
            with pytest.raises(OSError, match="broken"):
                journal.put({"a": b"2"})
    journal.put({"b": b"3"})
    journal.close()
    (path,) = (tmp_path / "journal").iterdir()
    assert int(path.name) > 1
    assert states_of(tmp_path / "journal") == {"a": b"1", "b": b"3"}
