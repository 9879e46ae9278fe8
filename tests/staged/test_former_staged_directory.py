"""A store whose staged commits lie in ``transactions/``, as they did once, keeps all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cut_machine import Machine
from engine_store import records_on_disk, small_config
from golden import golden_copy

from storage.errors import StoreFailed
from storage.offline.doctor import doctor
from storage.testing import ProcessStopped
from storage.writer import StoreWriter

KEEPS_STAGES = {"stage_timeout_ms": 1 << 50}  # the archive grows older than a day
DONE = 3  # records of each of two versions that are committed
STAGED = 3  # records that are staged
DECIDED = 100  # records whose commit a full disk stopped in the middle


def open_writer(directory: Path) -> StoreWriter:
    return StoreWriter.open(directory, small_config(**KEEPS_STAGES))


def check_taken_over(writer: StoreWriter, directory: Path) -> None:
    """Everything that was pending is as it was, or done; nothing is stored twice."""
    assert not (directory / "transactions").exists()
    assert {app.app_id: app.last_version for app in writer.staged.status()} == {
        "done": 1, "decided": 0, "staged": -1,
    }  # fmt: skip
    assert writer.staged.commit("done", 0, ["a"])[1]
    outcome, was_committed = writer.staged.commit("decided", 0, ["a"])
    assert was_committed
    assert outcome is not None
    assert outcome.record_count == DECIDED
    outcome, was_committed = writer.staged.commit("staged", 0, ["a"])
    assert not was_committed
    assert outcome is not None
    assert outcome.record_count == STAGED
    keys = [record.properties["UNIQ_KEY"] for record in records_on_disk(directory)]
    assert len(keys) == len(set(keys)) == 2 * DONE + DECIDED + STAGED


def test_what_is_pending_is_kept_and_completed(tmp_path: Path) -> None:
    directory = golden_copy("former-transactions", tmp_path)
    before = len(records_on_disk(directory))
    assert 2 * DONE < before < 2 * DONE + DECIDED
    with open_writer(directory) as writer:
        check_taken_over(writer, directory)
    with open_writer(directory) as writer:
        assert writer.staged.commit("staged", 0, ["a"])[1]


def test_the_doctor_names_what_is_pending_under_either_name(tmp_path: Path) -> None:
    directory = golden_copy("former-transactions", tmp_path)
    for name in ("transactions", "staged"):
        messages = {
            str(line["file"]).partition("-")[0]: str(line["message"])
            for line in doctor(directory)
            if str(line["file"]).startswith(name)
        }
        assert "not complete" in messages[f"{name}/decided"]
        assert "3 records are staged" in messages[f"{name}/staged"]
        if name == "transactions":
            (directory / name).rename(directory / "staged")


def test_a_writer_refuses_a_store_that_an_older_version_wrote_to_since(tmp_path: Path) -> None:
    directory = golden_copy("former-transactions", tmp_path)
    (directory / "staged" / "app").mkdir(parents=True)
    with pytest.raises(StoreFailed, match="both hold staged commits"):
        open_writer(directory)
    (directory / "staged" / "app").rmdir()
    with open_writer(directory) as writer:
        check_taken_over(writer, directory)


def machine_with_the_store(root: Path, step: int) -> Machine:
    golden_copy("former-transactions", root / "0").rename(root / "0" / "store")
    return Machine(root, seed=step)


@pytest.mark.parametrize("kills", [True, False])
@pytest.mark.parametrize("how", ["none", "all", ""])
def test_a_stop_at_any_step_around_the_rename(tmp_path: Path, kills: bool, how: str) -> None:
    """Of the names that were not synced, a cut leaves none, all, or some."""
    machine = machine_with_the_store(tmp_path / "steps", 1)
    machine.open(**KEEPS_STAGES)
    steps = [line.split() for line in machine.disk.trace]
    renamed = next(n for n, step in enumerate(steps, 1) if step[1:] == ["name", "store/staged"])
    names_found = set()
    for step in range(renamed - 1, renamed + 9):
        machine = machine_with_the_store(tmp_path / str(step), step)
        machine.disk.stop_after(step, kills=kills)
        with pytest.raises((ProcessStopped, StoreFailed)):
            machine.open(**KEEPS_STAGES)
        assert machine.disk.successor is not None
        if kills:
            machine.kill()
        machine.cut(how)
        names_found |= {
            name for name in ("transactions", "staged") if (machine.store / name).exists()
        }
        check_taken_over(machine.open(**KEEPS_STAGES), machine.store)
    assert names_found == {"transactions", "staged"}
