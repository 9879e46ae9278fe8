"""A ledger or a decision that is damaged: its second file counts; without one its application stops alone."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from engine_store import small_config
from flips import flipped
from staged_records import bodies_on_disk, stage

from storage.errors import DamagedLedger, DeviceFailed, StoreBusy, StoreFull
from storage.files.filesystem import OsFileSystem
from storage.files.system.os_file import OsFile
from storage.offline.doctor import doctor
from storage.staged.intent import Intent, load_intent, save_intent
from storage.staged.ledger import Ledger, Outcome, load_ledger, save_ledger
from storage.writer import StoreWriter

LEDGER = Ledger(
    app_id="app",
    committed=((0, 17), (20, 20)),
    last=Outcome(
        version=20, commit_offset=17, end_commit_offset=1117, record_count=10, committed_ms=1
    ),
)
FILESYSTEM = OsFileSystem()


def both(directory: Path, name: str) -> list[Path]:
    """The two files of one document."""
    paths = sorted(directory.rglob(f"{name}*"))
    assert [path.name for path in paths] == [name, f"{name}.bak"]
    return paths


def test_no_flipped_bit_of_a_ledger_changes_what_it_says(tmp_path: Path) -> None:
    save_ledger(FILESYSTEM, tmp_path, LEDGER)
    for path in both(tmp_path, "ledger.json"):
        whole = path.read_bytes()
        for data in flipped(whole):
            path.write_bytes(data)
            assert load_ledger(FILESYSTEM, tmp_path) == LEDGER
        path.write_bytes(whole)


def test_a_ledger_alone_is_refused_or_says_the_same_whatever_bit_flips(tmp_path: Path) -> None:
    save_ledger(FILESYSTEM, tmp_path, LEDGER)
    path, second = both(tmp_path, "ledger.json")
    second.unlink()
    refused = 0
    for data in flipped(path.read_bytes()):
        path.write_bytes(data)
        try:
            assert load_ledger(FILESYSTEM, tmp_path) == LEDGER
        except DamagedLedger:
            refused += 1
    assert refused > 6 * len(data)  # others hit a white space, or the name of the checksum


def test_no_flipped_bit_of_a_decision_changes_what_it_says(tmp_path: Path) -> None:
    intent = Intent(app_id="app", one_off=False, attempts=("a", "b"), log_offset=12_345)
    save_intent(FILESYSTEM, tmp_path, intent)
    path, _ = both(tmp_path, "intent.json")
    for data in flipped(path.read_bytes()):
        path.write_bytes(data)
        assert load_intent(FILESYSTEM, tmp_path) == intent


def test_a_start_makes_a_damaged_file_of_a_ledger_whole_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, [])
    paths = both(tmp_path, "ledger.json")
    whole = paths[0].read_bytes()
    for path in paths:
        path.write_bytes(whole[:-9])
        with StoreWriter.open(tmp_path, small_config()) as writer:
            assert writer.staged.commit("app", 0, [])[1]
        assert f"{path.name} is damaged" in caplog.text
        assert [each.read_bytes() for each in paths] == [whole, whole]


def test_a_ledger_of_a_former_version_gets_checksum_and_second_file(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 7, [])
    path, second = both(tmp_path, "ledger.json")
    whole = path.read_bytes()
    second.unlink()
    path.write_bytes(whole.split(b', "checksum"')[0] + b"}")
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 7, [])[1]
    assert path.read_bytes() == second.read_bytes() == whole


@pytest.mark.parametrize("which", [0, 1])
def test_an_old_file_put_back_in_the_place_of_a_ledger_forgets_no_commit(
    tmp_path: Path, which: int
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, [])
        paths = both(tmp_path, "ledger.json")
        old = paths[0].read_bytes()
        writer.staged.commit("app", 1, [])
    new = paths[0].read_bytes()
    paths[which].write_bytes(old)
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 1, [])[1]
    assert [path.read_bytes() for path in paths] == [new, new]


def test_what_a_former_version_has_written_since_counts(tmp_path: Path) -> None:
    """It knows one file, and no checksum."""
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, [])
    path, second = both(tmp_path, "ledger.json")
    former = replace(LEDGER, app_id="app", committed=((0, 1),)).to_document()
    path.write_text(json.dumps(former))
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 1, [])[1]
    assert path.read_bytes() == second.read_bytes()


def test_a_broken_ledger_stops_its_application_alone(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("broken", 0, [])
        writer.staged.commit("whole", 0, [])
    (directory,) = (tmp_path / "staged").glob("broken-*")
    paths = both(directory, "ledger.json")
    whole = paths[0].read_bytes()
    for path in paths:
        path.write_bytes(whole.replace(b"0", b"1", 1))
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        refused, other = writer.staged.status()
        assert refused.app_id == directory.name
        assert str(paths[0]) in refused.problem and "remove both" in refused.problem
        for call in (
            lambda: stage(writer.staged, "broken", 1, "a", [[b"x"]]),
            lambda: writer.staged.commit("broken", 0, []),
            lambda: writer.staged.abort("broken", 1, None),
        ):
            with pytest.raises(DamagedLedger, match=r"ledger\.json cannot be read"):
                call()
        assert (other.app_id, other.problem) == ("whole", "")
        stage(writer.staged, "whole", 1, "a", [[b"y"]])
        assert writer.staged.commit("whole", 1, ["a"])[0].record_count == 1
    assert [path.read_bytes() for path in paths] == [whole.replace(b"0", b"1", 1)] * 2

    paths[1].write_bytes(whole)
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert [app.problem for app in writer.staged.status()] == ["", ""]
        assert writer.staged.commit("broken", 0, [])[1]


def test_a_broken_decision_stops_its_application_alone(tmp_path: Path) -> None:
    class Full(OsFileSystem):
        full = ""

        def create(self, path, size, *, allocate, **options):  # type: ignore[no-untyped-def]
            if self.full and self.full in str(path):
                raise StoreFull("no space left")
            return super().create(path, size, allocate=allocate, **options)

    filesystem = Full()
    with StoreWriter.open(tmp_path, small_config(), filesystem=filesystem) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "broken", 0, "a", [[b"x"]])
        filesystem.full = "ledger"
        with pytest.raises(StoreFull):
            writer.staged.commit("broken", 0, ["a"])
        filesystem.full = ""
    for path in both(tmp_path / "staged", "intent.json"):
        path.write_bytes(b"{")
    with StoreWriter.open(tmp_path, small_config()) as writer:
        with pytest.raises(DamagedLedger, match=r"intent\.json cannot be read"):
            writer.staged.commit("broken", 0, ["a"])
        stage(writer.staged, "whole", 0, "a", [[b"y"]])
        assert writer.staged.commit("whole", 0, ["a"])[0].record_count == 1
    assert bodies_on_disk(tmp_path) == [b"x", b"y"]


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


@pytest.mark.parametrize("name", ["ledger.json", "intent.json"])
def test_a_ledger_or_an_intent_that_the_device_does_not_give_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "app", 0, "a", [[b"x"]])
        writer.staged.commit("app", 0, ["a"])
        stage(writer.staged, "app", 1, "a", [[b"y"]])
        with monkeypatch.context() as patch:
            patch.setattr(writer.staged, "_complete", lambda *_: (None, False))
            writer.staged.commit("app", 1, ["a"])
    read = OsFileSystem.read_bytes

    def failing(filesystem: OsFileSystem, path: Path) -> bytes:
        if path.name.startswith(name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read(filesystem, path)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "read_bytes", failing)
        with StoreWriter.open(tmp_path, small_config()) as writer:
            for call in (
                lambda: writer.staged.commit("app", 1, ["a"]),
                lambda: writer.staged.abort("app", 1, None),
                lambda: stage(writer.staged, "app", 2, "a", [[b"z"]]),
            ):
                with pytest.raises(DeviceFailed, match=name):
                    call()
        assert not any("is damaged" in line["message"] for line in doctor(tmp_path))
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 1, ["a"])[1]
    assert bodies_on_disk(tmp_path) == [b"x", b"y"]


@pytest.mark.parametrize("unread", [0, 1])
def test_a_damaged_file_beside_one_that_cannot_be_read_now_is_not_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: int
) -> None:
    save_ledger(OsFileSystem(), tmp_path, Ledger(app_id="app", committed=((0, 4),)))
    paths = both(tmp_path, "ledger.json")
    paths[1 - unread].write_bytes(b"{")
    read = OsFileSystem.read_bytes

    def failing(filesystem: OsFileSystem, path: Path) -> bytes:
        if path == paths[unread]:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read(filesystem, path)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "read_bytes", failing)
        with pytest.raises(OSError, match="Input/output"):
            load_ledger(OsFileSystem(), tmp_path)
    ledger = load_ledger(OsFileSystem(), tmp_path)
    assert ledger is not None and ledger.last_version == 4


@pytest.mark.parametrize("unread", [0, 1])
@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "Input/output error"), StoreBusy("no descriptor", retry_delay_ms=1)],
)
def test_a_start_writes_nothing_over_a_newer_ledger_that_it_cannot_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: int, error: Exception
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, [])
        paths = both(tmp_path, "ledger.json")
        old = paths[0].read_bytes()
        writer.staged.commit("app", 1, [])
        writer.staged.commit("other", 0, [])
        (app,) = (tmp_path / "staged").glob("app-*")
    paths = both(app, "ledger.json")
    newer = paths[unread].read_bytes()
    paths[1 - unread].write_bytes(old)
    read = OsFileSystem.read_bytes

    def failing(filesystem: OsFileSystem, path: Path) -> bytes:
        if path == paths[unread]:
            raise error
        return read(filesystem, path)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "read_bytes", failing)
        with StoreWriter.open(tmp_path, small_config()) as writer:
            with pytest.raises(DeviceFailed) as refused:
                writer.staged.commit("app", 1, [])
            assert ("device" in str(refused.value)) is isinstance(error, OSError)
            assert writer.staged.commit("other", 0, [])[1]
        found = [line["message"] for line in doctor(tmp_path) if app.name in line["file"]]
        assert found and not any("is damaged" in message for message in found)
    assert paths[unread].read_bytes() == newer
    with StoreWriter.open(tmp_path, small_config()) as writer:
        assert writer.staged.commit("app", 1, [])[1]


@pytest.mark.parametrize("what", ["open", "read_bytes"])
def test_a_lack_of_descriptors_refuses_one_application_and_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "app", 0, "a", [[b"x"]])
        writer.staged.commit("app", 1, [])
        writer.staged.commit("whole", 0, [])
    (app,) = (tmp_path / "staged").glob("app-*")
    call = getattr(OsFileSystem, what)

    def scarce(filesystem: OsFileSystem, path: Path, **options: bool) -> object:
        if path.is_relative_to(app):
            raise StoreBusy(f"{path} cannot be opened now: Too many open files", retry_delay_ms=1)
        return call(filesystem, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, what, scarce)
        with StoreWriter.open(tmp_path, small_config()) as writer:
            with pytest.raises(DeviceFailed, match=r"Too many open files.*when there are"):
                writer.staged.commit("app", 0, ["a"])
            assert writer.staged.commit("whole", 0, [])[1]
        found = [line["message"] for line in doctor(tmp_path) if app.name in line["file"]]
        assert found and all("cannot be opened now" in message for message in found)
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path) == [b"x"]
