"""What an audit sees without walking the log: lengths and order of files, checkpoint, configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.jobs.audit.findings import Finding, damaged_range
from pipeline.jobs.work import lost_files
from storage.format.checkpoint import BROKER_SIZE
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import parse_file_name
from storage.kernels.columns import CHECK_ALL, STOP_BLANK, STOP_END, STOP_ZERO, new_rows, stop_text
from storage.kernels.scan import scan_records
from storage.view.config_tables import has_topic_table, table_problems
from storage.view.file_sizes import common_size
from storage.view.log.files import FileEntry

if TYPE_CHECKING:
    from storage.view.store_view import StoreView

CLOCK_SLACK_MS: Final = 60_000


def audit_log_files(store: StoreView, *, in_use: bool) -> Iterator[Finding]:
    """Name log files of a wrong length and ranges whose file is gone."""
    files = _numbered(store, store.paths.commit_log)
    likely = store.settings.sizes.get("commit_log_file_size") or common_size(files)
    for number, file in enumerate(files):
        if file.size != likely and not (in_use and number >= len(files) - 2):
            yield _file(file, likely, physicalOffset=file.start_offset)
    yield from map(damaged_range, lost_files(store))


def audit_queue_files(store: StoreView, *, in_use: bool) -> Iterator[Finding]:
    """Name files of consume queues that have a wrong length."""
    queues = [
        (topic, queue_id, _numbered(store, directory))
        for topic, queue_id, directory in store.queue_directories()
    ]
    all_files = [file for _, _, files in queues for file in files]
    likely = store.settings.sizes.get("consume_queue_file_size") or common_size(all_files)
    for topic, queue_id, files in queues:
        for number, file in enumerate(files):
            if file.size != likely and not (in_use and number == len(files) - 1):
                place = file.start_offset // UNIT_SIZE
                yield _file(file, likely, topic=topic, queueId=queue_id, queueOffset=place)


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
    fields = store.checkpoint.broker_fields
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
    if not has_topic_table(store.filesystem, store.paths.config):
        yield {"kind": "config", "file": "config/topics.json", "problem": "missing"}
    tables = table_problems(store.filesystem, store.paths.config)
    for name, (problem, _) in tables.items():
        yield {"kind": "config", "file": f"config/{name}", "problem": problem}


def _numbered(store: StoreView, directory: Path) -> list[FileEntry]:
    """Return every file whose name is an offset, also one that lies inside another."""
    return sorted(
        FileEntry(start, entry.size, directory / entry.name)
        for entry in store.entries(directory)
        if not entry.is_directory and (start := parse_file_name(entry.name)) is not None
    )


def _file(file: FileEntry, likely: int, **where: Any) -> Finding:
    problem = f"{file.size} bytes long, not {likely}" if file.size else "empty"
    return {"kind": "file", "file": file.path.name, **where, "problem": problem}
