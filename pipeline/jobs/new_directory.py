"""A directory that has its name only when everything in it is durable.

It is filled beside its final place, as ``NAME.partial``, and renamed at the end. What a killed job
leaves there is removed by the next one; a lock on the directory distinguishes the two.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import PipelineError
from storage.stopped.files import make_work_directory


@contextlib.contextmanager
def new_directory(target: Path | str) -> Iterator[Path]:
    """Yield an empty directory to fill; it becomes ``target``, durable, when the block ends.

    When the block raises, nothing is left. Raises PipelineError if ``target`` exists, or if another
    job is writing to it.
    """
    target = Path(os.path.abspath(target))  # noqa: PTH100  resolve() would follow a link to it
    _refuse_existing(target)
    work = target.with_name(f"{target.name}.partial")
    make_work_directory(work, parents=True, exist_ok=True)
    lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another job is writing {target}; wait for it") from None
        _refuse_existing(target)  # by the job that had the lock before
        try:
            empty(work)
            yield work
            sync_tree(work)
            work.rename(target)
            sync_path(target.parent)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _refuse_existing(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise PipelineError(f"{target} exists; name a directory that does not")


def empty(directory: Path) -> None:
    """Delete what is in a directory."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def sync_tree(directory: Path) -> None:
    """Make every file and directory below ``directory`` durable, itself included."""
    for root, _, names in os.walk(directory):
        for name in names:
            sync_path(Path(root, name))
        sync_path(Path(root))


def sync_path(path: Path) -> None:
    """Make one file, or the names in one directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
