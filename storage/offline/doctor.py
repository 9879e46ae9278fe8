"""Findings about a store directory: what is damaged, what is odd, what recovery will make good.

Severities: *damage* is data that is lost or cannot be told from garbage; *warning* is something wrong
that recovery repairs, or that a broker would stumble over; *note* is worth knowing; *ok* is a check
that found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from storage.config import StoreConfig
from storage.files.filesystem import FileSystem, OsFileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue, list_files
from storage.format.checkpoint import PAGE_SIZE, BrokerFields
from storage.format.config_json import decode_config
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.format.names import INDEX_NAME_LENGTH, file_name, parse_file_name
from storage.format.record_layout import BLANK_SIZE, MAGIC_BLANK
from storage.index.consistency import index_gaps
from storage.index.follower import LogReader
from storage.kernels.columns import STORE_TIMESTAMP
from storage.offline.lines import Line
from storage.offline.opened import OfflineStore, open_offline
from storage.offline.staged import staged_findings
from storage.view.index.index_file import IndexShape, list_index_files
from storage.view.layout import StorePaths
from storage.view.log.walk import DamagedRange, RecordRun, walk_log
from storage.view.queues.pull import pull_queue
from storage.view.queues.tag_filter import MATCH_ALL

CONFIG_FILES: Final = (
    "topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json",
)  # fmt: skip
PULL_BYTES: Final = 16 << 20
PULL_RECORDS: Final = 65_536
DAY_MS: Final = 86_400_000


def doctor(directory: Path | str, spec: dict[str, Any] | Path | None = None) -> Iterator[Line]:
    """Yield findings ``{"severity", "file", "message"}``; ``file`` is relative, "" for the whole.

    Every record's checksums are checked. Raises NotAStore.
    """
    with open_offline(directory, spec) as store:
        disk = OsFileSystem()
        found = False
        for severity, file, message in _examine(store, disk):
            found = found or severity in ("warning", "damage")
            yield {"severity": severity, "file": file, "message": message}
        if not found:
            yield {"severity": "ok", "file": "", "message": "nothing is wrong"}


Finding = tuple[str, str, str]


def _examine(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    paths, config = store.paths, store.config
    if store.abort_found:
        yield "note", "abort", "the store was not stopped in order, or it is open now"
    yield from _config_files(disk, paths)
    yield from _log_files(disk, paths, config)
    yield from _queue_files(disk, paths, config)
    last_timestamp_ms = 0
    for finding in _records(store):
        if isinstance(finding, int):
            last_timestamp_ms = finding
        else:
            yield finding
    yield from _tail(store, disk)
    yield from _checkpoint(store, disk, last_timestamp_ms)
    if store.recovered.units_written:
        yield (
            "warning", "consumequeue",
            (f"{store.recovered.units_written} units were missing or did not agree with the log;"
            " the next start writes them again"),
        )  # fmt: skip
    yield from _queues(store)
    yield from _index(store, disk)
    yield from staged_findings(disk, paths.root)


def _config_files(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
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
            severity = "warning" if any(good) else "damage"
            yield severity, f"config/{name}", f"cannot be read; {rest}"
    if not disk.exists(paths.config / "topics.json"):
        yield "warning", "config/topics.json", "is missing: topics are known by their queues alone"


def _log_files(disk: FileSystem, paths: StorePaths, config: StoreConfig) -> Iterator[Finding]:
    for entry in disk.list_directory(paths.commit_log):
        if not entry.is_directory and parse_file_name(entry.name) is None:
            yield (
                "warning",
                f"commitlog/{entry.name}",
                "is not a commit log file; a broker refuses it",
            )
    following: int | None = None
    files = list_files(disk, paths.commit_log)
    for file in files:
        name = f"commitlog/{file.path.name}"
        if following is not None and file.start_offset != following:
            yield (
                "damage",
                name,
                f"the file before it is missing: [{following}, {file.start_offset})",
            )
        if file.size != config.commit_log_file_size:
            last = file is files[-1]
            severity = "warning" if last else "damage"
            yield severity, name, f"has {file.size} bytes, not {config.commit_log_file_size}"
        following = file.start_offset + config.commit_log_file_size


def _queue_files(disk: FileSystem, paths: StorePaths, config: StoreConfig) -> Iterator[Finding]:
    for topic in disk.list_directory(paths.consume_queue):
        queues = disk.list_directory(paths.consume_queue / topic.name) if topic.is_directory else []
        for queue in queues:
            directory = paths.consume_queue / topic.name / queue.name
            for file in list_files(disk, directory) if queue.is_directory else []:
                if file.size != config.consume_queue_file_size:
                    yield (
                        "warning", str(file.path.relative_to(paths.root)),
                        (f"has {file.size} bytes, not {config.consume_queue_file_size};"
                        " it is made again from the log"),
                    )  # fmt: skip


def _records(store: OfflineStore) -> Iterator[Finding | int]:
    """Check every record; the last thing given is the newest store time."""
    files = ReadOnlyMappedFileQueue(store.filesystem, store.paths.commit_log, file_size=0)
    recovered = store.recovered
    records = newest = 0
    for step in walk_log(files, recovered.min_offset, recovered.end_offset):
        if isinstance(step, RecordRun):
            records += len(step.rows)
            newest = max(newest, int(step.rows[:, STORE_TIMESTAMP].max()))
        elif isinstance(step, DamagedRange):
            size = store.config.commit_log_file_size
            name = file_name(step.begin_offset - step.begin_offset % size)
            yield (
                "damage", f"commitlog/{name}",
                (f"{step.end_offset - step.begin_offset} bytes at commit offset"
                f" {step.begin_offset}: {step.reason}"),
            )  # fmt: skip
    yield (
        "note", "commitlog",
        f"{records} intact records in [{recovered.min_offset}, {recovered.end_offset})",
    )  # fmt: skip
    yield newest


def _tail(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Look at what lies behind the end on disk: recovery has cleared it in its own view."""
    end = store.recovered.end_offset
    for entry in list_files(disk, store.paths.commit_log):
        if entry.start_offset + entry.size <= end or entry.size == 0:
            continue
        file = disk.open(entry.path, writable=False)
        array = file.map(writable=False).array[max(0, end - entry.start_offset) :]
        file.close()
        begin = max(end, entry.start_offset)
        if int.from_bytes(array[4:8].tobytes(), "big") == MAGIC_BLANK:
            array, begin = array[BLANK_SIZE:], begin + BLANK_SIZE
        used = np.flatnonzero(array)
        if len(used):
            yield (
                "warning", f"commitlog/{entry.path.name}",
                (f"after the end of the log, {int(used[-1]) + 1} bytes at commit offset {begin} are"
                " not a whole record of this place: one that was being written, or an old one"),
            )  # fmt: skip


def _checkpoint(store: OfflineStore, disk: FileSystem, last_timestamp_ms: int) -> Iterator[Finding]:
    path = store.paths.checkpoint
    if not disk.exists(path):
        yield "warning", "checkpoint", "is missing: the whole log is checked at the next start"
        return
    page = disk.read_bytes(path)
    if len(page) != PAGE_SIZE:
        yield "warning", "checkpoint", f"has {len(page)} bytes, not {PAGE_SIZE}"
    fields = BrokerFields.decode(page)
    times = (fields.physic_timestamp_ms, fields.logics_timestamp_ms, fields.index_timestamp_ms)
    if any(time < 0 or time > last_timestamp_ms + DAY_MS // 2 for time in times):
        yield (
            "warning", "checkpoint",
            f"its times {times} do not fit the newest record's, {last_timestamp_ms}",
        )  # fmt: skip
    if store.durable.store_id and not store.durable.trusted:
        yield (
            "note",
            "checkpoint",
            "a broker has run since: the whole log is checked at the next start",
        )


def _queues(store: OfflineStore) -> Iterator[Finding]:
    log = store.reader.log
    messages = 0
    for topic, queue_id in store.reader.queues_on_disk():
        queue = store.reader.queue_view(topic, queue_id)
        high = queue.max_offset(log.visible_offset)
        at = queue.min_offset(log.min_offset, high)
        while at < high:
            result = pull_queue(
                log, queue, topic=topic, queue_id=queue_id, queue_offset=at,
                max_messages=PULL_RECORDS, max_bytes=PULL_BYTES, tag_filter=MATCH_ALL,
            )  # fmt: skip
            messages += result.record_count
            for damage in result.damaged:
                yield (
                    "damage", f"consumequeue/{topic}/{queue_id}",
                    (f"queue offset {damage.queue_offset} (commit offset {damage.commit_offset},"
                    f" {damage.size} bytes): {damage.reason}"),
                )  # fmt: skip
            if result.next_offset <= at:
                break
            at = result.next_offset
    yield "note", "consumequeue", f"{messages} messages are served"


def _index(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    shape = IndexShape(store.config.index_slot_count, store.config.index_entry_count)
    headers = []
    listed = list_index_files(disk, store.paths.index)
    yield from _lost_index(store, max((number for number, _, _ in listed), default=0))
    for _, size, path in listed:
        if size != shape.file_size:
            yield (
                "warning", f"index/{path.name}",
                f"has {size} bytes, not {shape.file_size}; the index is made again from the log",
            )  # fmt: skip
            continue
        file = disk.open(path, writable=False)
        headers.append(IndexHeader.decode(file.pread(HEADER_SIZE, 0)))
        file.close()
    log = LogReader(disk, store.paths.commit_log)
    for gap in index_gaps(log, headers, store.reader.log.min_offset):
        yield (
            "warning", "index",
            (f"no file has the keys from commit offset {gap.begin} to {gap.end}; the indexer makes"
            " them again from the log"),
        )  # fmt: skip
    log.close()
    newest = max((header.end_commit_offset for header in headers), default=-1)
    reached = store.reader.index.end_offset
    if newest > store.recovered.end_offset:
        yield "warning", "index", f"reaches to {newest}, after the end of the log"
    elif newest < reached:
        yield (
            "note",
            "index",
            f"on disk it reaches to {max(newest, 0)}, the log's last key is at {reached}",
        )


def _lost_index(store: OfflineStore, newest_number: int) -> Iterator[Finding]:
    slot = store.durable_index
    ours = slot.present and slot.store_id == store.durable.store_id and store.durable.trusted
    if ours and newest_number < slot.file_name:
        yield (
            "warning", f"index/{slot.file_name:0{INDEX_NAME_LENGTH}d}",
            (f"is missing: keys up to commit offset {slot.indexed_offset} were in it; the indexer"
            " makes it again from the log"),
        )  # fmt: skip
