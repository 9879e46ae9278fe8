"""Damage of the journal that has ledgers and decisions: staged commits are refused until its file is removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from engine_store import small_config
from staged_records import bodies_on_disk, stage

from storage.errors import DamagedLedger, DeviceFailed, StoreBusy
from storage.files.filesystem import OsFileSystem
from storage.files.system.os_file import OsFile
from storage.offline.doctor import doctor
from storage.writer import StoreWriter


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


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
    read = OsFileSystem.read_bytes

    def failing(filesystem: OsFileSystem, asked: Path) -> bytes:
        if asked == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read(filesystem, asked)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "read_bytes", failing)
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
    read = OsFile.pread

    def failing(file: OsFile, length: int, position: int) -> bytes:
        if file.path == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read(file, length, position)

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pread", failing)
        with StoreWriter.open(tmp_path, small_config()) as writer:
            assert str(path) in " ".join(each.problem for each in writer.staged.status())
            with pytest.raises(DeviceFailed, match="does not give"):
                writer.staged.commit("app", 0, ["a"])
            assert writer.staged.commit("whole", 1, [])
        (found,) = (line for line in doctor(tmp_path) if str(path.name) in line["file"])
        assert found["message"].startswith("cannot be read")
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path) == [b"x"]


def test_a_lack_of_descriptors_refuses_one_application_and_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "app", 0, "a", [[b"x"]])
        writer.staged.commit("whole", 0, [])
    (app,) = (tmp_path / "staged").glob("app-*")
    call = OsFileSystem.open

    def scarce(filesystem: OsFileSystem, path: Path, **options: bool) -> object:
        if path.is_relative_to(app):
            raise StoreBusy(f"{path} cannot be opened now: Too many open files", retry_delay_ms=1)
        return call(filesystem, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "open", scarce)
        with StoreWriter.open(tmp_path, small_config()) as writer:
            with pytest.raises(DeviceFailed, match=r"Too many open files.*when there are"):
                writer.staged.commit("app", 0, ["a"])
            assert writer.staged.commit("whole", 0, [])[1]
        found = [line["message"] for line in doctor(tmp_path) if app.name in line["file"]]
        assert any("cannot be opened now" in message for message in found)
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path) == [b"x"]
