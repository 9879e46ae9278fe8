"""A store directory as it is: its log walked from end to end, and a reader up to where that ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from storage.checkpoint.durable_slots import DurableIndex, DurablePositions
from storage.checkpoint.positions import CheckpointFile, Role
from storage.config import StoreConfig
from storage.errors import NotAStore
from storage.files.filesystem import OsFileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.kernels.columns import STORE_TIMESTAMP
from storage.queues.batch_queues import batch_topics
from storage.reader import StoreReader
from storage.tables.topic_table import TopicTable
from storage.view.file_sizes import effective_config
from storage.view.in_use import has_writer
from storage.view.index.index_file import IndexShape
from storage.view.index.shape import find_index_shape
from storage.view.layout import StorePaths, check_is_store, queues_on_disk
from storage.view.live_topics import LiveTopics, topics_there_are
from storage.view.log.commit_log import EVERYTHING
from storage.view.log.lost_end import find_lost_end
from storage.view.log.walk import DamagedRange, End, RecordRun, walk_log
from storage.view.queues.queue_files import QueueFiles
from storage.view.settings import load_settings
from storage.view.store_view import StoreView

NO_INDEX: Final = DurableIndex(False, False, b"", 0, 0, bytes(40))
NO_POSITIONS: Final = DurablePositions(False, False, b"", 0, 0, 0)

QUEUE_SIZE: Final = "consume_queue_file_size"
SPEC_FIELDS: Final = {
    "mappedFileSizeCommitLog": "commit_log_file_size",
    "mappedFileSizeConsumeQueue": QUEUE_SIZE,
    "maxHashSlotNum": "index_slot_count",
    "maxIndexNum": "index_entry_count",
}
"""A broker's names of what its files do not always show."""


@dataclass(frozen=True, slots=True)
class WalkedLog:
    """What a walk of the whole log has met.

    ``end_offset`` is after the lost end, if there is one: that is then the last of ``damage``.
    """

    min_offset: int
    end_offset: int
    records_end: int
    last_timestamp_ms: int
    record_count: int
    damage: tuple[DamagedRange, ...]


@dataclass(frozen=True, slots=True)
class _Stated:
    """What the checkpoint says."""

    durable: DurablePositions = NO_POSITIONS
    index: DurableIndex = NO_INDEX
    confirm_offset: int | None = None
    """How far a writer has confirmed the log; None where none has run since the machine started."""

    @property
    def promised_offset(self) -> int | None:
        """From where on a sector that was never written ends the log; None where a record ends it."""
        durable = self.durable
        is_cut = durable.trusted and durable.synced_only and not durable.clean
        return durable.flushed_offset if is_cut and self.confirm_offset is None else None


@dataclass(frozen=True, slots=True)
class OfflineStore:
    """A directory, ready to be read."""

    paths: StorePaths
    filesystem: OsFileSystem
    config: StoreConfig
    walked: WalkedLog
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
    settled_offset: int = EVERYTHING,
) -> Iterator[OfflineStore]:
    """Walk the log of a directory and open it for reading; nothing is written.

    ``spec`` is a broker's configuration, or a file of it, under ``"store"``: needed only where the
    index files do not tell how many slots they have. Raises NotAStore.
    """
    root = Path(directory).absolute()
    if not root.is_dir():
        raise NotAStore(f"{root} is not a directory")
    filesystem = OsFileSystem()
    check_is_store(filesystem, root)
    paths = StorePaths(root)
    settings = load_settings(filesystem, paths)
    config = effective_config(filesystem, paths, spec_config(root, spec), settings)
    shape = find_index_shape(
        filesystem, paths.index, IndexShape(config.index_slot_count, config.index_entry_count)
    )
    config = replace(config, index_slot_count=shape.slot_count, index_entry_count=shape.entry_count)
    abort_found = filesystem.exists(paths.abort)
    stated = _stated(filesystem, paths)
    queues = list(queues_on_disk(filesystem, paths.consume_queue))
    files = ReadOnlyMappedFileQueue(
        filesystem, paths.commit_log, file_size=config.commit_log_file_size
    )
    if queues and not files.entries:
        raise NotAStore(f"{paths.consume_queue} holds queues but {paths.commit_log} holds no log")
    walked = _walk(filesystem, paths, files, queues, stated)
    topics = TopicTable(filesystem, paths.config, paths.journal)
    unqueued = batch_topics(filesystem, paths, topics)
    live = LiveTopics(
        {**settings.deleted_topics, **dict.fromkeys(unqueued, files.end_offset)},
        None
        if abort_found
        else topics_there_are((topic for topic, _ in queues), (topic.name for topic in topics)),
    )
    with StoreReader.open(
        root, config, filesystem=filesystem, bounds=(walked.min_offset, walked.end_offset)
    ) as reader:
        yield OfflineStore(
            paths,
            filesystem,
            config,
            walked,
            reader,
            stated.durable,
            stated.index,
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


def _stated(filesystem: OsFileSystem, paths: StorePaths) -> _Stated:
    try:
        checkpoint = CheckpointFile.open(filesystem, paths.checkpoint, Role.READER)
    except FileNotFoundError:
        return _Stated()
    try:
        confirmed = checkpoint.confirm_offset if checkpoint.writer_is_current else None
        return _Stated(checkpoint.durable.load(), checkpoint.durable.load_index(), confirmed)
    finally:
        checkpoint.close()


def _walk(
    filesystem: OsFileSystem,
    paths: StorePaths,
    files: ReadOnlyMappedFileQueue,
    queues: list[tuple[str, int]],
    stated: _Stated,
) -> WalkedLog:
    """Walk all of the log; its end is where the next start finds it."""
    durable = stated.durable
    damage: list[DamagedRange] = []
    record_count = last_timestamp_ms = 0
    begin_offset = end_offset = records_end = files.first_offset
    for step in walk_log(
        files, begin_offset, files.end_offset,
        search_limit_offset=files.end_offset, promised_offset=stated.promised_offset,
    ):  # fmt: skip
        if isinstance(step, RecordRun):
            record_count += len(step.rows)
            last_timestamp_ms = int(step.rows[-1, STORE_TIMESTAMP])
        elif isinstance(step, DamagedRange):
            damage.append(step)
        elif isinstance(step, End):
            end_offset = records_end = step.commit_offset
            lost = find_lost_end(
                files, step,
                file_size=files.file_size,
                durable_offset=durable.flushed_offset if durable.trusted else 0,
                stated_offset=max(stated.confirm_offset or 0, durable.flushed_offset)
                if durable.trusted
                else 0,
                queued_offset=lambda: max(
                    (_queued_end(filesystem, paths, *queue) for queue in queues), default=0
                ),
            )  # fmt: skip
            if lost is not None:
                damage.append(lost)
                records_end, end_offset = lost.begin_offset, lost.end_offset
    return WalkedLog(
        begin_offset, end_offset, records_end, last_timestamp_ms, record_count, tuple(damage)
    )


def _queued_end(filesystem: OsFileSystem, paths: StorePaths, topic: str, queue_id: int) -> int:
    """Return where the last record ends that has a unit in a queue; 0 without one."""
    directory = paths.consume_queue / topic / str(queue_id)
    queue = QueueFiles.open(filesystem, directory, 0, EVERYTHING)
    unit = queue.unit(queue.end - 1)
    return unit.commit_offset + unit.size if 0 < unit.size < PREFILL_SIZE else 0
