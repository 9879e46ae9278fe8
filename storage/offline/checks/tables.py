"""The JSON tables of ``config/``, and staged commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from storage import findings as kinds
from storage.findings import DAMAGE, WARNING, Finding
from storage.offline.staged import staged_findings
from storage.view.config_tables import has_topic_table, unreadable_tables

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.view.layout import StorePaths


def tables(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield tables that cannot be read, and a table of topics that is not there."""
    for name, has_backup in unreadable_tables(disk, paths.config).items():
        rest = "its .bak is used" if has_backup else "there is no .bak to use"
        yield Finding(
            severity=WARNING if has_backup else DAMAGE, kind=kinds.TABLE, file=f"config/{name}",
            message=f"cannot be read; {rest}",
        )  # fmt: skip
    if not has_topic_table(disk, paths.config):
        yield Finding(
            severity=WARNING, kind=kinds.TABLE_MISSING, file="config/topics.json",
            message="is missing: topics are known by their queues alone",
        )  # fmt: skip


def staged_commits(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield staged commits under way, and what of them and of their ledgers is damaged."""
    for severity, file, message in staged_findings(disk, paths.root):
        kind = kinds.STAGED_DAMAGE if severity == DAMAGE else kinds.STAGED_COMMIT
        yield Finding(severity=severity, kind=kind, file=file, message=message)
