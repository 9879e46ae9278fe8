"""Opening a store for writing: lock it, recover it, wire and start the engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.checkpoint.positions import CheckpointFile, Role
from storage.checkpoint.trust import kept_from
from storage.engine.engine import Engine
from storage.engine.table_agreement import lower_offsets, report, settle_topics
from storage.errors import NotAStore, StoreFull
from storage.files import open_files
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.files.mapped_file_queue import MappedFileQueue
from storage.files.transient_store_pool import TransientStorePool
from storage.format.checkpoint import WriterSlot
from storage.journal.states import StateJournal
from storage.log.acknowledgement import policy_of
from storage.queues.batch_queues import refuse_batch_topics
from storage.queues.queue_table import QueueTable
from storage.recovery.recover import Recovered, recover
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.topic_table import TopicTable
from storage.view.file_sizes import effective_config
from storage.view.layout import StorePaths, check_is_store
from storage.view.settings import damaged_settings, load_settings, save_settings
from storage.workers import Threads, Workers

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.config import StoreConfig
    from storage.files.filesystem import FileSystem

_LOG: Final = logging.getLogger(__name__)
IN_FLIGHT_BYTES_MAX: Final = 64 << 20  # of the appends that a writer died in


def open_engine(
    directory: Path,
    config: StoreConfig,
    filesystem: FileSystem,
    clock: Clock,
    *,
    waits_for_files: bool = True,
    workers: Workers | None = None,
    compares_all: bool = False,
) -> Engine:
    """Lock, recover and start the store in ``directory``, creating it if it is empty.

    Without ``waits_for_files`` an append never waits for the next log file; see the allocator.
    ``compares_all`` is as in ``recover``.
    """
    paths = StorePaths(directory)
    try:
        filesystem.make_directory(directory)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAStore(f"{directory} is not a directory") from error
    except OSError as error:
        raise NotAStore(f"{directory} cannot be created: {error.strerror}") from error
    check_is_store(filesystem, directory)
    try:
        lock = DirectoryLock.acquire(filesystem, directory, LockRole.WRITER)
    except OSError as error:
        raise NotAStore(f"{directory} cannot be written to: {error.strerror}") from error
    with ExitStack() as parts:  # closed at once if the engine does not come to own them
        parts.callback(lock.release)
        wire = partial(
            Engine,
            lock=lock,
            clock=clock,
            waits_for_files=waits_for_files,
            workers=workers or Threads(),
            policy=policy_of(config),
        )
        engine = _recover_and_wire(
            paths, config, filesystem, clock, wire, parts, compares_all=compares_all
        )
        parts.pop_all()
    engine.start()
    return engine


def _recover_and_wire(
    paths: StorePaths, config: StoreConfig, filesystem: FileSystem, clock: Clock,
    wire: Callable[..., Engine], parts: ExitStack, *, compares_all: bool,
) -> Engine:  # fmt: skip
    """Return the engine of a recovered store; what is opened for it goes on to ``parts``, too."""
    for name, problem in damaged_settings(filesystem, paths).items():
        report(name, problem)
    settings = load_settings(filesystem, paths)
    states = StateJournal(filesystem, paths.journal)
    parts.callback(states.close)
    topics = TopicTable(filesystem, paths.config, states)
    refuse_batch_topics(filesystem, paths, topics)
    config = effective_config(filesystem, paths, config, settings)
    for path in (paths.commit_log, paths.consume_queue, paths.config):
        filesystem.make_directory(path)
    filesystem.sync_directory(paths.config)  # what a dead process renamed there is relied on now
    positions = CheckpointFile.open(filesystem, paths.checkpoint, Role.WRITER)
    parts.callback(positions.close)
    durable = positions.durable.load()
    if not durable.trusted:
        # A broker ran since: the slot of our first checkpoint vouches for the page again, and must not
        # do so for what the writer before it had published.
        positions.end_session()
    if durable.store_id != settings.store_id:
        durable = WriterSlot()
    with (
        suppress(StoreFull) if settings.present else nullcontext()
    ):  # one of the two files is whole
        settings = save_settings(filesystem, paths, settings, config)
    files = MappedFileQueue(
        filesystem,
        paths.commit_log,
        file_size=config.commit_log_file_size,
        mapped_files_max=open_files.at_most(config.mapped_files_max, share=4),
    )
    parts.callback(files.close)
    queues = QueueTable(filesystem, paths.consume_queue, file_size=config.consume_queue_file_size)
    parts.callback(queues.close)
    pool = TransientStorePool(
        filesystem,
        Path(config.transient_pool_directory),
        store_id=settings.store_id,
        boot_id=positions.boot_id,
        file_size=config.commit_log_file_size,
        buffer_count=config.transient_pool_size,
    )
    abort_found = filesystem.exists(paths.abort)
    recovered = recover(
        files,
        queues,
        durable,
        abort_found=abort_found,
        unflushed_bytes_max=_unflushed_bytes_max(config, positions, durable),
        leftovers=pool.leftover(),
        deleted_topics=settings.deleted_topics,
        known_topics=[topic.name for topic in topics],
        compares_all=compares_all,
        published_offset=positions.confirm_offset if positions.writer_is_current else 0,
        rebooted=not positions.writer_is_current and not durable.clean,
    )
    _report_lost_end(recovered)
    if durable.trusted:
        _report_lost_begin(recovered, kept_from(positions, recovered.records_end))
    pool.discard_leftover()
    queues.end_recovery(recovered.end_offset)
    if settings.deleting_topic:
        recovered = _finish_deletion(settings.deleting_topic, topics, queues, recovered, clock)
        settings = save_settings(filesystem, paths, replace(settings, deleting_topic=""), config)
    if recovered.forgotten_topics:
        deleted = dict.fromkeys(recovered.forgotten_topics, recovered.end_offset)
        deleted_topics = {**settings.deleted_topics, **deleted}
        settings = replace(settings, deleted_topics=deleted_topics)
        settings = save_settings(filesystem, paths, settings, config)
    settle_topics(filesystem, paths, topics, recovered, clock.now_ms)
    offsets = ConsumerOffsets(filesystem, paths.config, clock)
    if lost := lower_offsets(offsets, topics, queues):
        settings = replace(settings, lost_offsets=(*settings.lost_offsets, *lost))
        settings = save_settings(filesystem, paths, settings, config)
    _mark_running(filesystem, paths)
    return wire(
        filesystem=filesystem, paths=paths, config=config, settings=settings,
        topics=topics, positions=positions, states=states, files=files, queues=queues,
        pool=pool if config.transient_pool else None, recovered=recovered, abort_found=abort_found,
        broker_ran=not durable.trusted,
    )  # fmt: skip


def _report_lost_end(recovered: Recovered) -> None:
    lost = recovered.lost_end
    if lost is not None:
        _LOG.error(
            "the end of the commit log is lost: %s: nothing is left of [%d, %d); the log goes on at %d, and"
            " each queue after the last offset that its units show",
            lost.reason, lost.begin_offset, lost.end_offset, lost.end_offset,
        )  # fmt: skip


def _report_lost_begin(recovered: Recovered, kept: int | None) -> None:
    if kept is not None and kept < recovered.min_offset:
        _LOG.error(
            "the oldest files of the commit log were removed: nothing is left of [%d, %d), which retention had not"
            " deleted; the log begins at %d",
            kept, recovered.min_offset, recovered.min_offset,
        )  # fmt: skip


def _unflushed_bytes_max(
    config: StoreConfig, positions: CheckpointFile, durable: WriterSlot
) -> int:
    """Return how far after its durable end the log may go on; recovery looks twice as far."""
    if not positions.writer_is_current:
        return config.unflushed_bytes_max
    # The machine has not gone down since: the last writer's word on how far it had come holds, but
    # for the batch that it died in.
    appended_bytes = positions.appended_offset - durable.flushed_offset
    return (max(appended_bytes, 0) + IN_FLIGHT_BYTES_MAX) // 2


def _finish_deletion(
    name: str, topics: TopicTable, queues: QueueTable, recovered: Recovered, clock: Clock
) -> Recovered:
    """Do what is left of a deletion that was decided; durable."""
    if name in topics:
        topics.delete(name, now_ms=clock.now_ms())
    unit_count = recovered.unit_count - queues.remove_topic(name)
    queues.sync()  # how many of the units that the last checkpoint counted are gone, nobody knows
    durable_units = recovered.end_offset, unit_count
    return replace(recovered, unit_count=unit_count, durable_units=durable_units)


def _mark_running(filesystem: FileSystem, paths: StorePaths) -> None:
    """Leave the file by which a broker, too, sees that the stop was not orderly; durable."""
    backup = paths.abort.with_name("abort.bak")
    if not filesystem.exists(paths.abort) and not filesystem.exists(backup):
        filesystem.create(backup, 0, allocate=False).close()
    filesystem.write_atomically(paths.abort, str(os.getpid()).encode(), backup=True)
