"""What a repair is about to change, kept aside: a directory ``repair-TIME`` inside the store.

A broker looks into the directories that it knows and no other. The directory has its name only when all
in it is durable; what a killed repair left under another name is removed by the next::

    repair-20260101T120000Z/
        findings.jsonl                   what was found, a line each, as ``penstock doctor --json`` prints it
        losses.json                      what is damaged for good; written when the repair is done
        checkpoint, config/*             as they were
        consumequeue/..., index/...      files that were wrong, as they were
        commitlog/FILE.POSITION          bytes of a log file from a position on that were not records
        commitlog/NAME                   what was in the log's directory and is not a log file
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage import findings as kinds
from storage.files.mapped_file_queue import list_files
from storage.findings import Finding
from storage.view.layout import LOG_DIRECTORY

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

PREFIX: Final = "repair-"
UNDER_WAY: Final = ".repair-under-way"
FINDINGS: Final = "findings.jsonl"
LOSSES: Final = "losses.json"
STEP: Final = 1 << 20


class KeptFile(NamedTuple):
    """Bytes ``[begin, end)`` of a file of the store, kept under ``name``; both are relative paths."""

    file: str
    begin: int
    end: int
    name: str


def files_to_keep(filesystem: FileSystem, root: Path, found: Iterable[Finding]) -> list[KeptFile]:
    """Return what has to be kept aside before what was found is repaired."""
    wrong = [finding for finding in found if finding.is_wrong]
    if not wrong:
        return []
    names = {"checkpoint"}
    names |= {f"config/{each.name}" for each in filesystem.list_directory(root / "config")}
    names |= {finding.file for finding in wrong if not finding.file.startswith(LOG_DIRECTORY)}
    kept = [
        KeptFile(name, 0, size, name)
        for name in sorted(names)
        if (size := _size(filesystem, root / name))
    ]
    return kept + list(_log_tails(filesystem, root, wrong))


def _log_tails(filesystem: FileSystem, root: Path, wrong: list[Finding]) -> Iterator[KeptFile]:
    """Yield what lies after the end of the log: the start overwrites it."""
    starts = {
        file.path.name: file.start_offset for file in list_files(filesystem, root / LOG_DIRECTORY)
    }
    for finding in wrong:
        if finding.kind is kinds.LOG_TAIL and finding.begin is not None and finding.end is not None:
            start = starts[Path(finding.file).name]
            begin, end = finding.begin - start, finding.end - start
            yield KeptFile(finding.file, begin, end, f"{finding.file}.{begin}")


def _size(filesystem: FileSystem, path: Path) -> int:
    """Return the length of a file; 0 of what is not one."""
    for entry in filesystem.list_directory(path.parent) if filesystem.exists(path.parent) else []:
        if entry.name == path.name and not entry.is_directory:
            return entry.size
    return 0


def keep_aside(
    filesystem: FileSystem, root: Path, found: list[Finding], kept: list[KeptFile], now_ms: int
) -> Path:
    """Copy what is to be kept into a new directory; return its path. All is durable on return.

    Raises StoreFull, OSError; then nothing of the store has changed.
    """
    work = root / UNDER_WAY
    _remove(filesystem, work)
    directories = {work}
    filesystem.make_directory(work)
    for each in kept:
        target = work / each.name
        filesystem.make_directory(target.parent)
        directories.add(target.parent)
        _copy(filesystem, root / each.file, target, each.begin, each.end)
    lines = (json.dumps(finding.as_line(str(root))) + "\n" for finding in found)
    _write(filesystem, work / FINDINGS, "".join(lines).encode())
    for directory in sorted(directories, reverse=True):
        filesystem.sync_directory(directory)
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    target = root / f"{PREFIX}{moment:%Y%m%dT%H%M%SZ}"
    count = 1
    while filesystem.exists(target):
        count += 1
        target = root / f"{PREFIX}{moment:%Y%m%dT%H%M%SZ}-{count}"
    filesystem.rename(work, target)
    filesystem.sync_directory(root)
    return target


def note_losses(filesystem: FileSystem, kept: Path, losses: Iterable[Finding]) -> None:
    """Note what is damaged for good beside what was kept aside; durable on return."""
    document = [
        {"kind": each.kind.name, "file": each.file, "begin": each.begin, "end": each.end}
        for each in losses
    ]
    filesystem.write_atomically(
        kept / LOSSES, json.dumps(document, indent=1).encode(), backup=False
    )


def known_losses(filesystem: FileSystem, root: Path) -> dict[tuple[object, ...], str]:
    """Return what earlier repairs noted, with the name of the directory that each is noted in."""
    found: dict[tuple[object, ...], str] = {}
    for entry in filesystem.list_directory(root):
        if entry.is_directory and entry.name.startswith(PREFIX):
            with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
                for each in json.loads(filesystem.read_bytes(root / entry.name / LOSSES)):
                    key = each["kind"], each["file"], each["begin"], each["end"]
                    found.setdefault(key, entry.name)
    return found


def _copy(filesystem: FileSystem, source: Path, target: Path, begin: int, end: int) -> None:
    """Copy a range; what is zeros stays a hole."""
    file = filesystem.open(source, writable=False)
    copy = filesystem.create(target, end - begin, allocate=False)
    try:
        for at in range(begin, end, STEP):
            piece = file.pread(min(STEP, end - at), at)
            if np.frombuffer(piece, np.uint8).any():
                copy.pwrite(piece, at - begin)
        copy.sync_all()
    finally:
        file.close()
        copy.close()


def _write(filesystem: FileSystem, path: Path, data: bytes) -> None:
    file = filesystem.create(path, 0, allocate=False)
    try:
        file.pwrite(data, 0)
        file.sync_all()
    finally:
        file.close()


def _remove(filesystem: FileSystem, directory: Path) -> None:
    for entry in filesystem.list_directory(directory):
        if entry.is_directory:
            _remove(filesystem, directory / entry.name)
        else:
            filesystem.unlink(directory / entry.name)
    if filesystem.exists(directory):
        filesystem.remove_directory(directory)
