"""What an audit sees without walking the log: lengths and order of files, checkpoint, configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.jobs.audit.findings import Finding, damaged_range
from pipeline.jobs.work import lost_files
from storage.format.checkpoint import BROKER_SIZE, BrokerFields
from storage.format.config_json import decode_config
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import parse_file_name
from storage.kernels.columns import CHECK_ALL, STOP_BLANK, STOP_END, STOP_ZERO, new_rows, stop_text
from storage.kernels.scan import scan_records

if TYPE_CHECKING:
    from storage.view.store_view import DirectoryEntry, StoreView

CLOCK_SLACK_MS: Final = 60_000
TABLES: Final = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")


def audit_log_files(store: StoreView, *, in_use: bool) -> Iterator[Finding]:
    """Name log files of a wrong length and ranges whose file is gone."""
    files = _numbered(store, store.paths.commit_log)
    sizes = [entry.size for _, entry in files]
    likely = store.settings.sizes.get("commit_log_file_size") or _common(sizes)
    for number, (start, entry) in enumerate(files):
        if entry.size != likely and not (in_use and number >= len(files) - 2):
            yield _file(entry, _length(entry.size, likely), physicalOffset=start)
    yield from map(damaged_range, lost_files(store))


def audit_queue_files(store: StoreView, *, in_use: bool) -> Iterator[Finding]:
    """Name files of consume queues that have a wrong length."""
    queues = [
        (topic, queue_id, _numbered(store, directory))
        for topic, queue_id, directory in store.queue_directories()
    ]
    sizes = [entry.size for _, _, files in queues for _, entry in files]
    likely = store.settings.sizes.get("consume_queue_file_size") or _common(sizes)
    for topic, queue_id, files in queues:
        for number, (start, entry) in enumerate(files):
            if entry.size != likely and not (in_use and number == len(files) - 1):
                yield _file(
                    entry,
                    _length(entry.size, likely),
                    topic=topic,
                    queueId=queue_id,
                    queueOffset=start // UNIT_SIZE,
                )


def audit_end(store: StoreView, end_offset: int) -> Iterator[Finding]:
    """Name what is written after the last record and is not a record."""
    for file in store.log.entries:
        if file.end_offset <= end_offset:
            continue
        begin = max(0, end_offset - file.start_offset)
        data = store.log.map(file)
        _, position, stop = scan_records(
            data, begin, len(data), file.start_offset + begin, CHECK_ALL, new_rows(1)
        )
        if stop not in (STOP_BLANK, STOP_ZERO, STOP_END):
            yield {
                "kind": "record",
                "physicalOffset": file.start_offset + int(position),
                "problem": f"after the last record, not a record: {stop_text(stop)}",
            }
        if stop != STOP_BLANK:
            return


def audit_checkpoint(store: StoreView, newest_timestamp_ms: int) -> Iterator[Finding]:
    """Name a checkpoint that is missing, cut, or has times that no record has."""
    page = store.checkpoint.page
    if len(page) < BROKER_SIZE:
        problem = f"{len(page)} bytes; {BROKER_SIZE} at least" if page else "missing or empty"
        yield {"kind": "checkpoint", "file": "checkpoint", "problem": problem}
        return
    fields = BrokerFields.decode(page)
    for name, time in (
        ("physicMsgTimestamp", fields.physic_timestamp_ms),
        ("logicsMsgTimestamp", fields.logics_timestamp_ms),
        ("indexMsgTimestamp", fields.index_timestamp_ms),
    ):
        if not 0 <= time <= newest_timestamp_ms + CLOCK_SLACK_MS:
            yield {
                "kind": "checkpoint",
                "file": "checkpoint",
                "problem": f"{name} is {time}; the newest record is of {newest_timestamp_ms}",
            }


def audit_config(store: StoreView) -> Iterator[Finding]:
    """Name configuration files that cannot be read, and a topic table that is not there."""
    directory = store.paths.config
    names = {entry.name for entry in store.entries(directory)}
    if not names & {TABLES[0], f"{TABLES[0]}.bak"}:
        yield {"kind": "config", "file": f"config/{TABLES[0]}", "problem": "missing"}
    for name in TABLES:
        if name in names and not _is_readable(store, directory / name):
            kept = f"{name}.bak" in names and _is_readable(store, directory / f"{name}.bak")
            yield {
                "kind": "config",
                "file": f"config/{name}",
                "problem": "cannot be read; its .bak can" if kept else "cannot be read",
            }


def _is_readable(store: StoreView, path: Path) -> bool:
    try:
        decode_config(store.filesystem.read_bytes(path))
    except (OSError, ValueError, TypeError):
        return False
    return True


def _numbered(store: StoreView, directory: Path) -> list[tuple[int, DirectoryEntry]]:
    found = [(parse_file_name(entry.name), entry) for entry in store.entries(directory)]
    return sorted(
        (start, entry) for start, entry in found if start is not None and not entry.is_directory
    )


def _common(sizes: Sequence[int]) -> int:
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def _length(size: int, likely: int) -> str:
    return f"{size} bytes long, not {likely}" if size else "empty"


def _file(entry: DirectoryEntry, problem: str, **where: Any) -> Finding:
    return {"kind": "file", "file": entry.name, **where, "problem": problem}
