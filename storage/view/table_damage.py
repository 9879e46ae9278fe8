"""Damage of the files in ``config/``: the copies of tables, and the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.findings import DAMAGE, WARNING, Finding
from storage.view.config_tables import has_topic_table, table_problems
from storage.view.layout import queues_on_disk
from storage.view.settings import damaged_settings, load_settings

if TYPE_CHECKING:
    from storage.files.filesystem import ReadFileSystem
    from storage.view.layout import StorePaths

READ_TRIES: Final = 3  # of a table that a running store writes to


def damaged_tables(filesystem: ReadFileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield what is wrong with the files of each table and of the settings, of a running store too."""
    problems = table_problems(filesystem, paths.config)
    for _ in range(READ_TRIES if problems else 0):  # a running store may be writing it
        again = table_problems(filesystem, paths.config)
        problems = {name: again[name] for name in problems if name in again}
    for name, (problem, is_lost) in problems.items():
        yield Finding(
            severity=DAMAGE if is_lost else WARNING,
            kind=kinds.TABLE_LOST if is_lost else kinds.TABLE,
            file=f"config/{name}", message=problem,
        )  # fmt: skip
    damaged = damaged_settings(filesystem, paths)
    is_whole = load_settings(filesystem, paths).present
    for name, problem in damaged.items():
        yield Finding(
            severity=WARNING if is_whole else DAMAGE, kind=kinds.TABLE, file=f"config/{name}",
            message=f"{problem}; the other of the two is used"
            if is_whole
            else f"{problem}; the store gets another identity",
        )  # fmt: skip
    has_topics = any(True for _ in queues_on_disk(filesystem, paths.consume_queue))
    if has_topics and not has_topic_table(filesystem, paths.config):
        yield Finding(
            severity=WARNING, kind=kinds.TABLE_MISSING, file="config/topics.json",
            message="is missing: topics are known by their queues alone",
        )  # fmt: skip
