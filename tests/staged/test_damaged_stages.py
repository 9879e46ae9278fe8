"""A stage that was acknowledged and is damaged while the writer is stopped: refused by name, and never taken for none."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config
from flips import flipped
from staged_records import bodies_on_disk, stage
from steps_to_try import steps_to_try

from storage.errors import DamagedStage, StageNotFound
from storage.offline.doctor import doctor
from storage.writer import StoreWriter

STRIDE = 23  # of the bits that are flipped, each of which takes a start


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """The file of an attempt ``a`` of one record, of a stopped store."""
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "app", 0, "a", [[b"x"]])
    (path,) = (tmp_path / "staged").rglob("*.stage")
    return path


def commit(directory: Path) -> None:
    with StoreWriter.open(directory, small_config()) as writer:
        writer.staged.commit("app", 0, ["a"])


def named_by_doctor(directory: Path, path: Path) -> bool:
    return any(
        line["severity"] == "damage" and line["file"].endswith(path.name)
        for line in doctor(directory)
    )


def test_no_flipped_bit_makes_a_stage_one_that_never_was(tmp_path: Path, sealed: Path) -> None:
    whole = sealed.read_bytes()
    for data in steps_to_try(list(flipped(whole))[::STRIDE], 9):
        sealed.write_bytes(data)
        with pytest.raises(DamagedStage, match=sealed.name):
            commit(tmp_path)
        assert sealed.read_bytes() == data
        assert named_by_doctor(tmp_path, sealed)
    assert bodies_on_disk(tmp_path) == []
    sealed.write_bytes(whole)
    commit(tmp_path)
    assert bodies_on_disk(tmp_path) == [b"x"]


@pytest.mark.parametrize("length", [0, 1, 40, -1])
def test_a_stage_that_is_cut_short_is_refused_until_it_is_staged_again(
    tmp_path: Path, sealed: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    sealed.write_bytes(sealed.read_bytes()[:length])
    for _ in range(2):
        with pytest.raises(DamagedStage, match=sealed.name):
            commit(tmp_path)
        assert named_by_doctor(tmp_path, sealed)
    assert f"{sealed} is damaged" in caplog.text
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.expire()
        with pytest.raises(DamagedStage):
            writer.staged.commit("app", 0, ["a"])
        with pytest.raises(StageNotFound):
            writer.staged.commit("app", 0, ["b"])
        stage(writer.staged, "app", 0, "a", [[b"again"]])
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path) == [b"again"]
    assert not named_by_doctor(tmp_path, sealed)


@pytest.mark.parametrize("attempts", [["a"], ["a", "b"], None])
def test_an_abort_gives_a_damaged_stage_up(
    tmp_path: Path, sealed: Path, attempts: list[str] | None
) -> None:
    sealed.write_bytes(b"")
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.abort("app", 0, attempts) == 1
        with pytest.raises(StageNotFound):
            writer.staged.commit("app", 0, ["a"])
    assert not sealed.exists()


def test_a_stop_before_a_stage_has_its_name_leaves_nothing(tmp_path: Path, sealed: Path) -> None:
    unnamed = sealed.with_name("unsealed." + sealed.name)
    sealed.rename(unnamed)
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert not unnamed.exists()
        with pytest.raises(StageNotFound):
            writer.staged.commit("app", 0, ["a"])
    assert [line for line in doctor(tmp_path) if "staged" in line["file"]] == []
