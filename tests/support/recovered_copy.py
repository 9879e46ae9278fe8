"""A copy of a store directory, recovered as a broker would: its log and queues agree, its index covers the log.

No file of ours is made in it, so that what a broker's own recovery leaves can be compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from golden import sparse_copy

from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import MappedFileQueue
from storage.format.checkpoint import BrokerFields, WriterSlot
from storage.index.directory import IndexDirectory
from storage.index.follower import IndexFollower, LogReader
from storage.index.recovery import recover_foreign
from storage.offline.opened import open_offline
from storage.queues.queue_table import QueueTable
from storage.recovery.recover import recover
from storage.view.index.index_file import IndexShape
from storage.view.layout import StorePaths

FILESYSTEM = FileSystem()


def recovered_copy(directory: Path, into: Path, spec: dict[str, Any] | Path | None = None) -> Path:
    """Return a recovered copy of a directory, with the spec that lies beside it; ``spec`` as of ``open_offline``."""
    copy = into / directory.name
    sparse_copy(directory, copy)
    beside = directory.parent / f"{directory.name}.spec.json"
    if beside.is_file():
        shutil.copy(beside, into)
    with open_offline(copy, spec) as opened:
        paths, sizes, topics = opened.paths, opened.sizes, opened.topics
        known = [topic.name for topic in opened.reader.topics]
        durable, abort_found = opened.durable, opened.abort_found
    recovered = recover(
        MappedFileQueue(FILESYSTEM, paths.commit_log, file_size=sizes.commit_log_file_size),
        QueueTable(FILESYSTEM, paths.consume_queue, file_size=sizes.consume_queue_file_size),
        durable if durable.trusted else WriterSlot(),
        abort_found=abort_found,
        unflushed_bytes_max=StoreConfig().unflushed_bytes_max,
        deleted_topics=topics.deleted_topics,
        known_topics=known,
    )
    catch_up(
        FILESYSTEM,
        paths,
        IndexShape(sizes.index_slot_count, sizes.index_entry_count),
        end_commit_offset=recovered.end_offset,
        index_timestamp_ms=_index_timestamp_ms(paths.checkpoint),
        unclean=abort_found,
        now_ms=SystemClock().now_ms,
    )
    return copy


def _index_timestamp_ms(checkpoint: Path) -> int:
    if not checkpoint.exists():
        return 0
    return BrokerFields.decode(checkpoint.read_bytes()).index_timestamp_ms


def catch_up(
    filesystem: FileSystem,
    paths: StorePaths,
    shape: IndexShape,
    *,
    end_commit_offset: int,
    index_timestamp_ms: int,
    unclean: bool,
    now_ms: Callable[[], int],
) -> None:
    """Bring a broker's index files to cover the log up to ``end_commit_offset``; arguments as of ``recover_foreign``."""
    with (
        closing(LogReader(filesystem, paths.commit_log)) as log,
        closing(
            IndexDirectory(
                filesystem, paths.index, shape, checksums=paths.index_checksums, now_ms=now_ms,
            )
        ) as directory,
    ):  # fmt: skip
        start = recover_foreign(
            directory,
            log,
            min_commit_offset=log.first_offset,
            end_commit_offset=end_commit_offset,
            index_timestamp_ms=index_timestamp_ms,
            unclean=unclean,
        )
        follower = IndexFollower(log, start.position, directory.put, skip=start.skip)
        while follower.step(end_commit_offset):
            pass
