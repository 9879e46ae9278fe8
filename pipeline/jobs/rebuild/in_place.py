"""Putting new directories of a store in the place of old ones.

Two renames: killed between them, a store has no directory of that name, which the next start rebuilds from
the log. What is left under another name is removed by the next job.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import Final

from pipeline.jobs.new_directory import sync_path, sync_tree
from storage.stopped.files import make_work_directory

SUFFIX: Final = ".rebuilt"


def beside(directory: Path) -> Path:
    """Return an empty directory to build in, beside the one that it will replace.

    What earlier jobs left is removed. Their tasks may still be writing, so each gets a name of its own.
    """
    for left in directory.parent.glob(f"{directory.name}.*{SUFFIX}"):
        shutil.rmtree(left)
    work = _beside(directory)
    make_work_directory(work)
    return work


def put_in_place(work: Path, directory: Path) -> None:
    """Make ``work`` durable and give it the name of ``directory``, whose content goes; durable."""
    sync_tree(work)
    old = _beside(directory)
    if directory.exists():
        directory.rename(old)
    work.rename(directory)
    sync_path(directory.parent)
    shutil.rmtree(old, ignore_errors=True)


def _beside(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.{secrets.token_hex(4)}{SUFFIX}")
