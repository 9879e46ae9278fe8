"""A store directory as it is: its log walked from end to end, and a reader up to where that ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from storage.checks.store import CheckedStore, WalkedLog, live_topics
from storage.config import StoreConfig
from storage.errors import NotAStore
from storage.files.directory_lock import has_writer
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.consume_entry import UNIT_SIZE
from storage.queues.batch_queues import batch_topics
from storage.reader import StoreReader
from storage.tables.topic_table import TopicTable
from storage.view.file_sizes import FileSizes, effective_config
from storage.view.index.index_file import IndexShape
from storage.view.index.shape import find_index_shape
from storage.view.layout import check_is_store, queues_on_disk
from storage.view.log.commit_log import EVERYTHING
from storage.view.log.lost_end import find_lost_end
from storage.view.log.walk import ROWS_MAX, DamagedRange, End, RecordRun, walk_log
from storage.view.queues.comparison import RangeCheck
from storage.view.queues.units import UnitBuilder
from storage.view.store_view import StoreView

Advance = Callable[[int], None]
QUEUE_SIZE: Final = "consume_queue_file_size"
SPEC_FIELDS: Final = {
    "mappedFileSizeCommitLog": "commit_log_file_size",
    "mappedFileSizeConsumeQueue": QUEUE_SIZE,
    "maxHashSlotNum": "index_slot_count",
    "maxIndexNum": "index_entry_count",
}
"""A broker's names of what its files do not always show."""


@dataclass(frozen=True, kw_only=True)
class OfflineStore(CheckedStore):
    """A directory, ready to be read."""

    reader: StoreReader

    @property
    def filesystem(self) -> FileSystem:
        """This machine's."""
        return FileSystem()


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
    advance: Advance | None = None,
) -> Iterator[OfflineStore]:
    """Walk the log of a directory and open it for reading; nothing is written.

    With ``advance``, which is called with the bytes walked, the walk compares the queues with the log up to
    ``settled_offset``.

    ``spec`` is a broker's configuration, or a file of it, under ``"store"``: needed only where the
    index files do not tell how many slots they have. Raises NotAStore.
    """
    root = Path(directory).absolute()
    if not root.is_dir():
        raise NotAStore(f"{root} is not a directory")
    view, filesystem = StoreView(root), FileSystem()
    check_is_store(filesystem, root)
    paths = view.paths
    config = effective_config(filesystem, paths, spec_config(root, spec), view.settings)
    shape = find_index_shape(
        filesystem, paths.index, IndexShape(config.index_slot_count, config.index_entry_count)
    )
    config = replace(config, index_slot_count=shape.slot_count, index_entry_count=shape.entry_count)
    abort_found = filesystem.exists(paths.abort)
    queues = list(queues_on_disk(filesystem, paths.consume_queue))
    files = ReadOnlyMappedFileQueue(
        filesystem, paths.commit_log, file_size=config.commit_log_file_size
    )
    if queues and not files.entries:
        raise NotAStore(f"{paths.consume_queue} holds queues but {paths.commit_log} holds no log")
    topics = live_topics(view)
    unqueued = batch_topics(filesystem, paths, TopicTable(filesystem, paths.config, paths.journal))
    deleted = {**topics.deleted_topics, **dict.fromkeys(unqueued, files.end_offset)}
    topics = replace(topics, deleted_topics=deleted)
    check, builder = RangeCheck(), UnitBuilder(ROWS_MAX)
    held = cache(lambda key: view.queue(*key).units)

    def take(records: RecordRun) -> None:
        if advance is not None:
            check.take(records, builder, held, topics, settled_offset)
            advance(records.end_offset - records.begin_offset)

    walked = _walk(view, files, take)
    with StoreReader.open(
        root, config, filesystem=filesystem, bounds=(walked.min_offset, walked.end_offset)
    ) as reader:
        yield OfflineStore(
            view=view,
            log=reader.log,
            sizes=FileSizes(config.commit_log_file_size, config.consume_queue_file_size, *shape),
            walked=walked,
            topics=topics,
            abort_found=abort_found,
            settled_offset=settled_offset,
            reader=reader,
            check=check,
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


def _walk(
    view: StoreView,
    files: ReadOnlyMappedFileQueue,
    take: Callable[[RecordRun], None],
) -> WalkedLog:
    """Walk all of the log; its end is where the next start finds it."""
    durable, words = view.checkpoint.durable, view.checkpoint.live_words
    confirmed = None if words is None else words["confirm_offset"]
    # From there on a sector that was never written ends the log.
    is_cut = durable.synced_only and not durable.clean and confirmed is None
    damage: list[DamagedRange] = []
    begin_offset = end_offset = records_end = files.first_offset
    for step in walk_log(
        files, begin_offset, files.end_offset, search_limit_offset=files.end_offset,
        promised_offset=durable.flushed_offset if is_cut else None,
    ):  # fmt: skip
        if isinstance(step, RecordRun):
            take(step)
        elif isinstance(step, DamagedRange):
            damage.append(step)
        elif isinstance(step, End):
            end_offset = records_end = step.commit_offset
            lost = find_lost_end(
                files, step,
                file_size=files.file_size,
                durable_offset=durable.flushed_offset,
                stated_offset=max(confirmed or 0, durable.flushed_offset) if durable.trusted else 0,
                queued_offset=view.newest_record_end,
            )  # fmt: skip
            if lost is not None:
                damage.append(lost)
                records_end, end_offset = lost.begin_offset, lost.end_offset
    return WalkedLog(begin_offset, end_offset, records_end, tuple(damage))
