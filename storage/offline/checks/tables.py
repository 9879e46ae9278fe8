"""The JSON tables of ``config/``, and staged commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.findings import DAMAGE, WARNING, Finding
from storage.format.config_json import decode_config
from storage.offline.staged import staged_findings

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.view.layout import StorePaths

CONFIG_FILES: Final = (
    "topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json",
)  # fmt: skip


def tables(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield tables that cannot be read, and a table of topics that is not there."""
    for name in CONFIG_FILES:
        good = []
        for candidate in (name, name + ".bak"):
            path = paths.config / candidate
            if disk.exists(path):
                try:
                    good.append(isinstance(decode_config(disk.read_bytes(path)), dict))
                except ValueError:
                    good.append(False)
        if good and not good[0]:
            rest = "its .bak is used" if any(good) else "there is no .bak to use"
            yield Finding(
                severity=WARNING if any(good) else DAMAGE, kind=kinds.TABLE, file=f"config/{name}",
                message=f"cannot be read; {rest}",
            )  # fmt: skip
    if not disk.exists(paths.config / "topics.json"):
        yield Finding(
            severity=WARNING, kind=kinds.TABLE_MISSING, file="config/topics.json",
            message="is missing: topics are known by their queues alone",
        )  # fmt: skip


def staged_commits(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield staged commits under way, and what of them and of their ledgers is damaged."""
    for severity, file, message in staged_findings(disk, paths.root):
        kind = kinds.STAGED_DAMAGE if severity == DAMAGE else kinds.STAGED_COMMIT
        yield Finding(severity=severity, kind=kind, file=file, message=message)
