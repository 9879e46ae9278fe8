"""What an audit sees without walking the log: lengths and order of files, checkpoint, configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pipeline.files.places import Entry, Place, entries, map_file
from pipeline.files.store_files import LOG_DIRECTORY
from pipeline.files.store_settings import store_settings
from pipeline.jobs.audit.findings import Finding
from pipeline.jobs.work import lost_files
from storage.format.checkpoint import BROKER_SIZE, BrokerFields
from storage.format.config_json import decode_config
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import parse_file_name
from storage.kernels.columns import CHECK_ALL, STOP_BLANK, STOP_END, STOP_ZERO, new_rows, stop_text
from storage.kernels.scan import scan_records

if TYPE_CHECKING:
    from pipeline.files.store_files import StoreFiles

CLOCK_SLACK_MS: Final = 60_000
TABLES: Final = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")


def audit_log_files(store: StoreFiles, *, in_use: bool) -> Iterator[Finding]:
    """Name log files of a wrong length and ranges whose file is gone."""
    files = _numbered(store.root / LOG_DIRECTORY)
    sizes = [entry.size for _, entry in files]
    likely = store_settings(store).get("commitLogFileSize") or _common(sizes)
    for number, (start, entry) in enumerate(files):
        if entry.size != likely and not (in_use and number >= len(files) - 2):
            yield _file(entry, _length(entry.size, likely), physicalOffset=start)
    for hole in lost_files(store):
        size = hole.end - hole.begin
        yield {
            "kind": "record",
            "physicalOffset": hole.begin,
            "size": size,
            "problem": hole.reason,
        }


def audit_queue_files(store: StoreFiles, *, in_use: bool) -> Iterator[Finding]:
    """Name files of consume queues that have a wrong length."""
    queues = [
        (topic, queue_id, _numbered(directory))
        for topic, queue_id, directory in store.queue_directories()
    ]
    sizes = [entry.size for _, _, files in queues for _, entry in files]
    likely = store_settings(store).get("consumeQueueFileSize") or _common(sizes)
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


def audit_end(store: StoreFiles, end_offset: int) -> Iterator[Finding]:
    """Name what stands behind the last record and is none, though it was written."""
    for file in store.log:
        if file.end <= end_offset:
            continue
        begin = max(0, end_offset - file.start)
        data = map_file(file.path)[: file.size]
        _, position, stop = scan_records(
            data, begin, len(data), file.start + begin, CHECK_ALL, new_rows(1)
        )
        if stop not in (STOP_BLANK, STOP_ZERO, STOP_END):
            yield {
                "kind": "record",
                "physicalOffset": file.start + int(position),
                "problem": f"behind the last record stands what is none: {stop_text(stop)}",
            }
        if stop != STOP_BLANK:
            return


def audit_checkpoint(store: StoreFiles, newest_timestamp_ms: int) -> Iterator[Finding]:
    """Name a checkpoint that is missing, cut, or tells of times that no record has."""
    page = store.page
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


def audit_config(store: StoreFiles) -> Iterator[Finding]:
    """Name configuration files that cannot be read, and a topic table that is not there."""
    directory = store.root / "config"
    names = {entry.name for entry in entries(directory)}
    if not names & {TABLES[0], f"{TABLES[0]}.bak"}:
        yield {"kind": "config", "file": f"config/{TABLES[0]}", "problem": "missing"}
    for name in TABLES:
        if name in names and not _is_readable(directory / name):
            kept = f"{name}.bak" in names and _is_readable(directory / f"{name}.bak")
            yield {
                "kind": "config",
                "file": f"config/{name}",
                "problem": "cannot be read; its .bak can" if kept else "cannot be read",
            }


def _is_readable(path: Place) -> bool:
    try:
        decode_config(path.read_bytes())
    except (OSError, ValueError, TypeError):
        return False
    return True


def _numbered(directory: Place) -> list[tuple[int, Entry]]:
    found = [(parse_file_name(entry.name), entry) for entry in entries(directory)]
    return sorted(
        (start, entry) for start, entry in found if start is not None and not entry.is_directory
    )


def _common(sizes: Sequence[int]) -> int:
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def _length(size: int, likely: int) -> str:
    return f"{size} bytes long, not {likely}" if size else "empty"


def _file(entry: Entry, problem: str, **where: Any) -> Finding:
    return {"kind": "file", "file": entry.name, **where, "problem": problem}
