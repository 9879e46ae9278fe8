"""Findings about a store directory: what is damaged, what is odd, what recovery will make good.

The whole log is walked, whatever the checkpoint says, and every queue on disk is compared with it. A store
that is running is looked at up to where it was when the check began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage import findings as kinds
from storage.checks.checkpoint import checkpoint
from storage.checks.index import index_behind, index_file_checks, missing_index_files
from storage.checks.log import log_files, log_records, log_tail
from storage.checks.queues import queue_files, queue_findings
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import list_files
from storage.findings import DAMAGE, NOTE, OK, Finding, Line
from storage.offline.checks.leases import lease_journal
from storage.offline.checks.pending import log_holds, pending_files
from storage.offline.checks.staged import staged_commits
from storage.offline.checks.tables import table_findings
from storage.offline.kept_aside import known_losses
from storage.offline.opened import Advance, open_offline, settled_offset_of
from storage.view.layout import LOG_DIRECTORY
from storage.view.log.commit_log import EVERYTHING

if TYPE_CHECKING:
    from storage.offline.opened import OfflineStore


def doctor(
    directory: Path | str,
    spec: dict[str, Any] | Path | None = None,
    *,
    advance: Advance = lambda _: None,
) -> Iterator[Line]:
    """Yield findings as lines, ``{"severity", "kind", "file", "message", ...}``; see ``Finding``.

    Every record's checksums are checked, and every unit of a queue is compared with its record.
    ``advance`` is called with bytes read, ``work_bytes`` in all. Raises NotAStore.
    """
    found = False
    for finding in examine(directory, spec, advance=advance):
        found = found or finding.is_wrong
        yield finding.as_line(str(directory))
    if not found:
        sound = Finding(severity=OK, kind=kinds.STATE, file="", message="nothing is wrong")
        yield sound.as_line(str(directory))


def work_bytes(directory: Path | str) -> int:
    """Return about how many bytes ``doctor`` will read; 0 of what is not a store."""
    try:
        files = list_files(FileSystem(), Path(directory) / LOG_DIRECTORY)
    except OSError:
        return 0
    return sum(file.size for file in files)


def examine(
    directory: Path | str,
    spec: dict[str, Any] | Path | None = None,
    *,
    advance: Advance = lambda _: None,
    is_locked: bool = False,
) -> Iterator[Finding]:
    """Yield what is found in a store; losses that a repair has noted are notes.

    With ``is_locked`` the caller sees to it that nobody works on the store. Raises NotAStore.
    """
    disk = FileSystem()
    settled_offset = EVERYTHING if is_locked else settled_offset_of(Path(directory))
    known = None
    for finding in _examine(directory, spec, disk, settled_offset, advance, is_locked):
        if known is None:
            known = known_losses(disk, Path(directory))
        noted = known.get((finding.kind.name, finding.file, finding.begin, finding.end))
        if noted is not None and finding.severity == DAMAGE:
            message = f"{finding.message}; noted in {noted}"
            yield replace(finding, severity=NOTE, message=message)
        else:
            yield finding


def _examine(
    directory: Path | str,
    spec: dict[str, Any] | Path | None,
    disk: FileSystem,
    settled_offset: int,
    advance: Advance,
    is_locked: bool,
) -> Iterator[Finding]:
    with open_offline(directory, spec, settled_offset=settled_offset, advance=advance) as store:
        if store.abort_found:
            yield Finding(
                severity=NOTE, kind=kinds.STATE, file="abort",
                message="the store was not stopped in order, or it is open now",
            )  # fmt: skip
        yield from table_findings(store, disk)
        yield from log_files(store)
        yield from log_records(store)
        yield from log_tail(store)
        yield from checkpoint(store)
        yield from queue_files(store)
        yield from queue_findings(store)
        yield from _index(store)
        yield from lease_journal(disk, store.paths, is_locked=is_locked)
        yield from pending_files(disk, store.paths)
        yield from log_holds(store)
        yield from staged_commits(disk, store.paths)


def _index(store: OfflineStore) -> Iterator[Finding]:
    checks = index_file_checks(store)
    for each in checks:
        finding = each.finding(store.log)
        if finding is not None:
            yield finding
    yield from missing_index_files(store, checks)
    yield from index_behind(store, checks)
