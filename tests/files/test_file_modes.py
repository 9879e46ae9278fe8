"""Who may open what is made: its owner alone, or where files are shared whoever the umask lets."""

import os
import stat

import pytest

from storage import modes
from storage.files.filesystem import OsFileSystem
from storage.stopped.files import write_queue


@pytest.fixture
def made(tmp_path):
    """Makes one of each kind; returns the modes by name."""

    def make():
        filesystem = OsFileSystem()
        for name, allocate in (("allocated", True), ("sparse", False)):
            filesystem.create(tmp_path / name, 4096, allocate=allocate).close()
        for version in (b"1", b"2"):
            filesystem.write_atomically(tmp_path / "table", version)
        filesystem.make_directory(tmp_path / "outer" / "inner")
        filesystem.lock(tmp_path / "lock", 0, b"").release()
        return {
            str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
            for path in tmp_path.rglob("*")
        }

    before = os.umask(0o022)
    yield make
    os.umask(before)
    modes.share(shared=False)


FILES = {"allocated", "sparse", "table", "table.bak", "lock"}
DIRECTORIES = {"outer", "outer/inner"}


@pytest.mark.parametrize(
    ("shared", "of_file", "of_directory"), [(False, 0o600, 0o700), (True, 0o644, 0o755)]
)
def test_what_is_made_has_the_mode_of_its_process(made, shared, of_file, of_directory):
    modes.share(shared=shared)
    assert made() == dict.fromkeys(FILES, of_file) | dict.fromkeys(DIRECTORIES, of_directory)


@pytest.mark.parametrize(("mode", "of_file"), [(0o700, 0o600), (0o755, 0o644)])
def test_a_task_makes_files_for_whom_the_job_has_made_their_directory(
    tmp_path, made, mode, of_file
):
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(mode)
    write_queue(work / "consumequeue" / "orders" / "0", 0, bytes(20), 200)
    made_by_it = {path.is_file(): stat.S_IMODE(path.stat().st_mode) for path in work.rglob("*")}
    assert made_by_it == {False: mode, True: of_file}
