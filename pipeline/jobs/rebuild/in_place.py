"""Putting new directories of a store in the place of old ones, each in one step.

The kernel exchanges two names at once, so a crash leaves the old directory or the new one, whole, under
the name that counts; what is left under the other name is removed by the next job.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError
from pipeline.jobs.new_directory import sync_path, sync_tree
from storage.stopped.files import make_work_directory

SUFFIX: Final = ".rebuilt"
RENAME_EXCHANGE: Final = 2
AT_FDCWD: Final = -100


def beside(directory: Path) -> Path:
    """Return an empty directory to build in, beside the one that it will replace.

    What earlier jobs left is removed. Their tasks may still be writing, so each gets a name of its own.
    """
    for left in directory.parent.glob(f"{directory.name}.*{SUFFIX}"):
        shutil.rmtree(left)
    work = directory.with_name(f"{directory.name}.{secrets.token_hex(4)}{SUFFIX}")
    make_work_directory(work)
    return work


def check_exchange(root: Path) -> None:
    """Raise PipelineError if the file system of ``root`` cannot exchange directories."""
    first, second = root / f"exchange.a{SUFFIX}", root / f"exchange.b{SUFFIX}"
    try:
        for path in (first, second):
            path.mkdir(exist_ok=True)
        _exchange(first, second)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
        raise PipelineError(
            f"{root}: its file system cannot exchange two directories in one step; rebuild to a new"
            " directory instead of in place"
        ) from error
    finally:
        for path in (first, second):
            if path.exists():
                path.rmdir()


def put_in_place(work: Path, directory: Path) -> None:
    """Make ``work`` durable and give it the name of ``directory``, whose content goes; durable.

    Killed before, the old content is there; killed after, the new one.
    """
    sync_tree(work)
    if directory.exists():
        _exchange(work, directory)
    else:
        work.rename(directory)
    sync_path(directory.parent)
    if work.exists():
        shutil.rmtree(work)


def _exchange(first: Path, second: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, "no renameat2", str(first))
    done = renameat2(
        AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), ctypes.c_uint(RENAME_EXCHANGE)
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first))
