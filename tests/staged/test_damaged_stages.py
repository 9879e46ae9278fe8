"""A stage that was acknowledged and is damaged while the writer is stopped: named, and its commit is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from engine_store import small_config
from flips import flip, flipped
from staged_records import bodies_on_disk, stage
from steps_to_try import steps_to_try

from storage.errors import DamagedLedger, DamagedStage, DeviceFailed, StageNotFound
from storage.files.filesystem import FileSystem
from storage.files.system.os_file import File
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


def test_no_flipped_bit_of_a_stage_is_committed(tmp_path: Path, sealed: Path) -> None:
    whole = sealed.read_bytes()
    for data in steps_to_try(list(flipped(whole))[::STRIDE], 9):
        sealed.parent.mkdir(parents=True, exist_ok=True)
        sealed.write_bytes(data)
        assert named_by_doctor(tmp_path, sealed)
        with pytest.raises((DamagedStage, StageNotFound)):
            commit(tmp_path)
    assert bodies_on_disk(tmp_path) == []
    sealed.parent.mkdir(parents=True, exist_ok=True)
    sealed.write_bytes(whole)
    commit(tmp_path)
    assert bodies_on_disk(tmp_path) == [b"x"]


@pytest.mark.parametrize("length", [0, 1, 40, -1])
def test_a_stage_that_is_cut_short_is_refused_until_it_is_staged_again(
    tmp_path: Path, sealed: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    sealed.write_bytes(sealed.read_bytes()[:length])
    assert named_by_doctor(tmp_path, sealed)
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert f"{sealed} is damaged" in caplog.text
        with pytest.raises(StageNotFound):
            writer.staged.commit("app", 0, ["a"])
        stage(writer.staged, "app", 0, "a", [[b"again"]])
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path) == [b"again"]
    assert not named_by_doctor(tmp_path, sealed)


def test_a_stop_before_a_stage_has_its_name_leaves_nothing(tmp_path: Path, sealed: Path) -> None:
    unnamed = sealed.with_name("unsealed." + sealed.name)
    sealed.rename(unnamed)
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert not unnamed.exists()
        with pytest.raises(StageNotFound):
            writer.staged.commit("app", 0, ["a"])
    assert [line for line in doctor(tmp_path) if "staged" in line["file"]] == []


def test_a_damaged_journal_refuses_staged_commits_alone_until_it_is_removed(
    tmp_path: Path,
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        writer.staged.commit("app", 0, [])
        stage(writer.staged, "app", 1, "a", [[b"staged"]])
    (path,) = (tmp_path / "journal").iterdir()
    flip(path, 40)
    left = path.with_name(path.name + ".damaged")
    for _ in range(2):
        with StoreWriter.open(tmp_path, small_config()) as writer:
            (refused,) = writer.staged.status()
            assert refused.app_id.startswith("app-") and str(left) in refused.problem
            for call in (
                lambda: stage(writer.staged, "app", 2, "a", [[b"x"]]),
                lambda: writer.staged.commit("app", 1, ["a"]),
                lambda: writer.staged.abort("app", 1, None),
                lambda: writer.staged.commit("other", 0, []),
            ):
                with pytest.raises(DamagedLedger, match=r"is damaged.*Remove it"):
                    call()
        (found,) = (line for line in doctor(tmp_path) if line["kind"] == "journal")
        assert found["file"] == f"journal/{left.name}"

    left.unlink()
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 1, ["a"])[0].record_count == 1
    assert bodies_on_disk(tmp_path) == [b"staged"]


def test_a_decision_before_the_damage_is_completed_once_the_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "app", 0, "a", [[b"x"]])
        monkeypatch.setattr(writer.staged, "_complete", lambda *_: (None, False))
        writer.staged.commit("app", 0, ["a"])
        needed_offset = writer.staged.needed_offset()
    (path,) = (tmp_path / "journal").iterdir()
    flip(path, len(path.read_bytes().rstrip(b"\0")) - 60)  # a state that was put after it
    with StoreWriter.open(tmp_path, small_config()) as writer:
        with pytest.raises(DamagedLedger):
            writer.staged.commit("app", 0, ["a"])
        assert writer.staged.needed_offset() == needed_offset is not None
    (tmp_path / "journal" / f"{path.name}.damaged").unlink()
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 0, ["a"])[1]
    assert bodies_on_disk(tmp_path) == [b"x"]


def test_a_start_that_cannot_read_the_journal_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, [])
    (path,) = (tmp_path / "journal").iterdir()
    read = FileSystem.read_bytes

    def failing(filesystem: FileSystem, asked: Path) -> bytes:
        if asked == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read(filesystem, asked)

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "read_bytes", failing)
        with pytest.raises(OSError, match=path.name):
            StoreWriter.open(tmp_path, small_config())
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 0, [])[1]


def test_a_stage_that_the_device_does_not_give_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        assert stage(writer.staged, "app", 0, "a", [[b"x"]])
        writer.staged.commit("whole", 0, [])
    (path,) = (tmp_path / "staged").rglob("*.stage")
    read = File.pread

    def failing(file: File, length: int, position: int) -> bytes:
        if file.path == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read(file, length, position)

    with monkeypatch.context() as patch:
        patch.setattr(File, "pread", failing)
        with StoreWriter.open(tmp_path, small_config()) as writer:
            assert str(path) in " ".join(each.problem for each in writer.staged.status())
            with pytest.raises(DeviceFailed, match="could not read"):
                writer.staged.commit("app", 0, ["a"])
            assert writer.staged.commit("whole", 1, [])
        (found,) = (line for line in doctor(tmp_path) if str(path.name) in line["file"])
        assert found["message"].startswith("cannot be read")
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path) == [b"x"]
