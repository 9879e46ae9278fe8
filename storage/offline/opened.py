"""A store directory recovered in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from storage.checkpoint.durable_slots import DurableIndex, DurablePositions
from storage.checkpoint.positions import CheckpointFile, Role
from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.errors import NotAStore
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import MappedFileQueue
from storage.files.overlay import OverlayFileSystem
from storage.format.checkpoint import BrokerFields
from storage.format.consume_entry import UNIT_SIZE
from storage.index.recovery import catch_up
from storage.queues.batch_queues import batch_topics
from storage.queues.queue_table import QueueTable
from storage.reader import StoreReader
from storage.recovery.recover import Recovered, recover
from storage.tables.topics import TopicTable
from storage.view.file_sizes import effective_config
from storage.view.in_use import has_writer
from storage.view.index.index_file import IndexShape
from storage.view.index.shape import find_index_shape
from storage.view.layout import StorePaths, check_is_store
from storage.view.live_topics import LiveTopics, topics_there_are
from storage.view.log.commit_log import EVERYTHING
from storage.view.settings import load_settings
from storage.view.store_view import StoreView

NO_INDEX: Final = DurableIndex(False, False, b"", 0, 0, bytes(40))

QUEUE_SIZE: Final = "consume_queue_file_size"
SPEC_FIELDS: Final = {
    "mappedFileSizeCommitLog": "commit_log_file_size",
    "mappedFileSizeConsumeQueue": QUEUE_SIZE,
    "maxHashSlotNum": "index_slot_count",
    "maxIndexNum": "index_entry_count",
}
"""A broker's names of what its files do not always show."""


@dataclass(frozen=True, slots=True)
class OfflineStore:
    """What recovery made of a directory, ready to be read."""

    paths: StorePaths
    filesystem: FileSystem
    config: StoreConfig
    recovered: Recovered
    reader: StoreReader
    durable: DurablePositions
    durable_index: DurableIndex
    abort_found: bool
    topics: LiveTopics
    settled_offset: int = EVERYTHING
    """Up to which commit offset nothing changes meanwhile."""

    @property
    def is_in_use(self) -> bool:
        """Whether a writer may be at work."""
        return self.settled_offset < EVERYTHING


def settled_offset_of(directory: Path) -> int:
    """Return up to which commit offset a store that is in use will not change; else EVERYTHING."""
    if not has_writer(directory):
        return EVERYTHING
    with suppress(NotAStore):
        return StoreView.open(directory).bounds.queued_offset
    return 0


@contextmanager
def open_offline(
    directory: Path | str,
    spec: dict[str, Any] | Path | None = None,
    *,
    compares_all: bool = False,
    settled_offset: int = EVERYTHING,
) -> Iterator[OfflineStore]:
    """Recover a copy-on-write view of a directory and open it for reading.

    ``spec`` is a broker's configuration, or a file of it, under ``"store"``: needed only where the
    index files do not tell how many slots they have. ``compares_all`` is as in ``recover``.
    Raises NotAStore.
    """
    root = Path(directory).absolute()
    if not root.is_dir():
        raise NotAStore(f"{root} is not a directory")
    filesystem = OverlayFileSystem(root)
    check_is_store(filesystem, root)
    paths = StorePaths(root)
    settings = load_settings(filesystem, paths)
    config = effective_config(filesystem, paths, spec_config(root, spec), settings)
    shape = find_index_shape(
        filesystem, paths.index, IndexShape(config.index_slot_count, config.index_entry_count)
    )
    config = replace(config, index_slot_count=shape.slot_count, index_entry_count=shape.entry_count)
    abort_found = filesystem.exists(paths.abort)
    durable, durable_index, published_offset = _stated(filesystem, paths)
    files = MappedFileQueue(filesystem, paths.commit_log, file_size=config.commit_log_file_size)
    queues = QueueTable(filesystem, paths.consume_queue, file_size=config.consume_queue_file_size)
    topics = TopicTable(filesystem, paths.config)
    unqueued = batch_topics(filesystem, paths, topics)
    known = [topic.name for topic in topics]
    on_disk = [topic for topic, _ in queues.on_disk()]
    live = LiveTopics(
        {**settings.deleted_topics, **dict.fromkeys(unqueued, files.end_offset)},
        None if abort_found else topics_there_are(on_disk, known),
    )
    recovered = recover(
        files, queues, durable,
        abort_found=abort_found, unflushed_bytes_max=config.unflushed_bytes_max,
        deleted_topics=live.deleted, known_topics=known,
        published_offset=published_offset or 0,
        rebooted=published_offset is None and not durable.clean,
        compares_all=compares_all,
    )  # fmt: skip
    catch_up(
        filesystem,
        paths,
        shape,
        end_commit_offset=recovered.end_offset,
        index_timestamp_ms=_broker_fields(filesystem, paths).index_timestamp_ms,
        unclean=abort_found,
        now_ms=SystemClock().now_ms,
    )
    with StoreReader.open(
        root,
        config,
        filesystem=filesystem,
        bounds=(recovered.min_offset, recovered.end_offset),
    ) as reader:
        yield OfflineStore(
            paths,
            filesystem,
            config,
            recovered,
            reader,
            durable,
            durable_index,
            abort_found,
            live,
            settled_offset,
        )


def spec_config(directory: Path, spec: dict[str, Any] | Path | None) -> StoreConfig:
    """Return the sizes that a spec gives; without one ``NAME.spec.json`` beside ``NAME`` is used.

    As with a broker, a consume queue file holds the units that its size begins.
    """
    if spec is None:
        beside = directory.parent / f"{directory.name}.spec.json"
        spec = beside if beside.is_file() else {}
    document = json.loads(spec.read_text(encoding="utf-8")) if isinstance(spec, Path) else spec
    sizes = document.get("store") or {}
    given = {name: int(sizes[key]) for key, name in SPEC_FIELDS.items() if key in sizes}
    if QUEUE_SIZE in given:
        given[QUEUE_SIZE] = -(-given[QUEUE_SIZE] // UNIT_SIZE) * UNIT_SIZE
    return replace(StoreConfig(), **given)  # type: ignore[arg-type]


def _broker_fields(filesystem: FileSystem, paths: StorePaths) -> BrokerFields:
    try:
        return BrokerFields.decode(filesystem.read_bytes(paths.checkpoint))
    except FileNotFoundError:
        return BrokerFields()


def _stated(
    filesystem: FileSystem, paths: StorePaths
) -> tuple[DurablePositions, DurableIndex, int | None]:
    """Return what the checkpoint says is durable, and how far a writer of this boot has confirmed the log.

    None where no writer has run since the machine started.
    """
    try:
        checkpoint = CheckpointFile.open(filesystem, paths.checkpoint, Role.READER)
    except FileNotFoundError:
        return DurablePositions(False, False, b"", 0, 0, 0), NO_INDEX, None
    try:
        published = checkpoint.confirm_offset if checkpoint.writer_is_current else None
        return checkpoint.durable.load(), checkpoint.durable.load_index(), published
    finally:
        checkpoint.close()
