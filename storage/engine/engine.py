"""The parts of a writer: wired, started in order, and stopped in reverse."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from storage.checkpoint.positions import CheckpointFile
from storage.counts import LatencyProbe
from storage.engine.checkpointer import Checkpointer, LogProgress
from storage.errors import StoreError, StoreFailed
from storage.files.allocator import MappedFileAllocator
from storage.files.directory_lock import DirectoryLock
from storage.files.mapped_file import MappedFile
from storage.files.mapped_file_queue import MappedFileQueue
from storage.files.transient_store_pool import TransientStorePool
from storage.format.hosts import encode_host
from storage.kernels.columns import STOP_END
from storage.kernels.lookup import check_one
from storage.log.acknowledgement import (
    APPENDED,
    COMMITTED,
    FLUSHED,
    Acknowledgement,
    AckPolicy,
    AppendPosition,
)
from storage.log.commit_log import CommitLog
from storage.log.flush import CommitWorker, FlushWorker
from storage.log.followers import Followers
from storage.queues.dispatch import Dispatcher, DispatchWorker
from storage.queues.queue_table import QueueTable
from storage.queues.rebuild import QueueRebuild
from storage.recovery.recover import Recovered
from storage.retention.policy import retention_policy
from storage.retention.worker import RetentionWorker
from storage.scrub.worker import ScrubWorker
from storage.tables.topic_table import TopicTable
from storage.view.layout import StorePaths
from storage.view.settings import StoreSettings
from storage.workers import FailureLatch, FailureListener, Worker, Workers

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.config import StoreConfig
    from storage.files.filesystem import FileSystem
    from storage.journal.states import StateJournal
    from storage.kernels.columns import ByteArray

DRAIN_TIMEOUT_S: Final = 60.0


class Engine:
    """Everything a writer needs, recovered and running. ``open_engine`` makes one."""

    def __init__(
        self,
        *,
        filesystem: FileSystem,
        paths: StorePaths,
        config: StoreConfig,
        settings: StoreSettings,
        lock: DirectoryLock,
        topics: TopicTable,
        positions: CheckpointFile,
        states: StateJournal,
        files: MappedFileQueue,
        queues: QueueTable,
        pool: TransientStorePool | None,
        recovered: Recovered,
        abort_found: bool,
        broker_ran: bool,
        clock: Clock,
        waits_for_files: bool,
        workers: Workers,
        policy: AckPolicy,
    ) -> None:
        self.config = config
        self.topics = topics
        self.queues = queues
        self.recovered = recovered
        self.abort_found = abort_found
        self.broker_ran = broker_ran  # since our last writer, or may have
        self.store_host = encode_host(config.store_host)
        self.last_timestamp_ms = recovered.last_timestamp_ms
        self.filesystem = filesystem
        self.paths = paths
        self.settings = settings
        self._lock = lock
        self.positions = positions
        self.states = states
        self._files = files
        self._pool = pool
        self._latch = FailureLatch()
        self._latch.add_listener(lambda _: positions.publish_writable(False))
        end_offset = recovered.end_offset
        self._allocator = MappedFileAllocator(
            filesystem, paths.commit_log, file_size=config.commit_log_file_size,
            warm_ahead_bytes=config.warm_ahead_bytes,
            warm_cache_bytes_max=config.warm_cache_bytes_max,
            pool=pool, waits=waits_for_files, workers=workers,
        )  # fmt: skip
        self.log = CommitLog(
            files,
            end_offset=end_offset,
            store_host=self.store_host,
            append_property_crc=config.append_property_crc,
            next_file=self._next_file,
        )
        self.flusher = FlushWorker(
            self.log, on_request=FLUSHED in policy, interval_ms=config.flush_interval_ms,
            workers=workers,
        )  # fmt: skip
        self.flush_latency, self.dispatch_latency = LatencyProbe(), LatencyProbe()
        self.committer = (
            None
            if pool is None
            else CommitWorker(self.log, interval_ms=config.commit_interval_ms, workers=workers)
        )
        self.dispatch = DispatchWorker(
            Dispatcher(files, queues, end_offset, unit_count=recovered.unit_count),
            limit=lambda: positions.confirm_offset,
            publish=self._dispatched,
            clock=clock,
            workers=workers,
        )
        self.checkpointer = Checkpointer(
            positions, queues, store_id=settings.store_id,
            synced_only=policy.waits_for == policy.shows == FLUSHED,
            interval_ms=config.queue_flush_interval_ms,
            progress=self._progress, save_topics=topics.save,
            workers=workers,
        )  # fmt: skip
        self.followers = Followers()
        self.retention = RetentionWorker(
            filesystem, files, queues, self.followers, retention_policy(config), clock,
            publish=positions.publish_min_commit_offset,
            drop_units=self._drop_units,
            last_timestamp_ms=recovered.last_timestamp_ms,
            workers=workers,
        )  # fmt: skip
        self.queue_rebuild = QueueRebuild(
            filesystem, paths, queues, self.dispatch,
            min_offset=lambda: self.log.min_offset, file_made=self.publish_tables,
            workers=workers,
        )  # fmt: skip
        self.scrub = ScrubWorker(
            filesystem, paths, states, clock,
            interval_ms=config.scrub_interval_ms, bytes_per_s=config.scrub_bytes_per_s,
            min_offset=lambda: self.log.min_offset,
            durable_offset=lambda: self.checkpointer.durable_offset,
            rebuild=self.queue_rebuild.rebuild,
            workers=workers,
        )  # fmt: skip
        self.flusher.add_listener(positions.publish_flushed)
        self.flusher.add_listener(self.flush_latency.reached)
        if self.committer is not None:
            self.committer.add_listener(self._committed)
        for worker in self._in_order_of_bytes():
            worker.add_failure_listener(self.fail)
        appended = AppendPosition(self.log)
        self.acknowledgement = Acknowledgement(
            policy,
            {APPENDED: appended, COMMITTED: self.committer or appended, FLUSHED: self.flusher},
            show=self._show,
        )
        self._shows_commits = self.acknowledgement.shows_commits
        self.wake_dispatch = self.dispatch.wake  # after an append that may be shown at once
        self.on_dispatched: Callable[[], None] | None = None
        self._requests = self.acknowledgement.requests
        self.followers.register("flush", lambda: self.flusher.offset)
        self.followers.register("dispatch", lambda: self.dispatch.position)
        self.followers.register("checkpoint", lambda: self.checkpointer.durable_offset)
        self.followers.register("index", self._index_needs, yields=True)
        self._checkpointed_offset = recovered.durable_units[0]
        self.config_generation = 1  # of the topic table, when the session begins
        self._publishing = threading.Lock()
        self._hurried_from = -1
        self._early_bytes = config.unflushed_bytes_max // 4

    def _in_order_of_bytes(self) -> list[Worker]:
        """Return the workers in the order in which bytes travel."""
        workers: list[Worker] = [self.flusher, self.dispatch, self.checkpointer]
        return workers if self.committer is None else [self.committer, *workers]

    def _index_needs(self) -> int | None:
        """Return where the indexer goes on after any end of it; None while the store has no index."""
        slot = self.positions.durable.load_index()
        return slot.indexed_offset if slot.store_id == self.settings.store_id else None

    def start(self) -> None:
        """Publish the session and start the workers; all is let go if that fails."""
        try:
            self._start()
        except BaseException:
            self._abandon()
            raise

    def _start(self) -> None:
        end_offset = self.recovered.end_offset
        self.checkpointer.begin(self.recovered.durable_units)
        self.positions.start_writer(
            min_commit_offset=self.log.min_offset,
            end_offset=end_offset,
            dispatched_offset=end_offset,
            config_generation=self.config_generation,
        )
        self._allocator.start()
        tail = self.log.tail
        if tail is not None:
            if self._pool is not None:
                tail.borrow(self._pool.borrow(tail.start_offset, position=tail.appended_position))
            self._allocator.follow(tail)
        # The first append must not find its file still being made; a later one hardly can.
        self._allocator.prepare(end_offset if tail is None else tail.end_offset, wait=tail is None)
        self.flusher.start_at(end_offset)
        if self.committer is not None:
            self.committer.start_at(end_offset)
        self.dispatch.start()
        self.checkpointer.start()
        self.scrub.start()
        self.queue_rebuild.start()

    # ---- events, each handled in the thread that made it happen

    def appended(self, store_timestamp_ms: int) -> None:
        """Publish an append; runs under the append lock."""
        offset = self.log.appended_offset
        self.last_timestamp_ms = store_timestamp_ms
        self.flush_latency.begin(offset)
        self.dispatch_latency.begin(offset)
        self._allocator.advance()
        if self.committer is not None:
            self.positions.appended_offset = offset
            self.committer.request(offset)
        else:
            self.positions.publish_append(offset, confirm=self._shows_commits)
            if self._shows_commits:
                self.wake_dispatch()
            for request in self._requests:
                request(offset)
        if offset - self.log.flushed_offset > self._early_bytes:
            self._flush_early()

    def _flush_early(self) -> None:
        """Between two timed flushes no more may gather than leaves the writer room to go on."""
        flushed_offset = self.log.flushed_offset
        if flushed_offset != self._hurried_from:
            self._hurried_from = flushed_offset
            self.flusher.hurry()

    def _committed(self, offset: int) -> None:
        self.positions.committed_offset = offset
        if self._shows_commits:
            self._show(offset)
        for request in self._requests:
            request(offset)

    def _show(self, offset: int) -> None:
        """Let followers read up to ``offset``."""
        self.positions.publish_confirm(offset, wake=False)
        self.dispatch.wake()

    def _dispatched(self, offset: int) -> None:
        self.positions.publish_dispatched(offset)
        self.dispatch_latency.reached(offset)
        if self.on_dispatched is not None:
            self.on_dispatched()
        if offset - self._checkpointed_offset >= self.config.queue_flush_bytes:
            self._checkpointed_offset = offset
            self.checkpointer.hurry()

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing more is acknowledged, or None."""
        return self._latch.failure

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call ``listener(failure)`` once, when nothing more is acknowledged."""
        self._latch.add_listener(listener)

    def fail(self, failure: StoreFailed) -> None:
        """End writing for good, unless it has ended before; nothing more is acknowledged."""
        self._latch.fail(failure)

    def _progress(self) -> LogProgress:
        # The time is read first: one that is too old for its offset only makes a broker look at more.
        timestamp_ms = self.last_timestamp_ms
        appended_offset = self.log.appended_offset
        dispatched = self.dispatch.dispatcher.reached
        return LogProgress(appended_offset, timestamp_ms, self.log.flushed_offset, dispatched)

    def publish_tables(self) -> None:
        """Have readers look again at topics and queues: the table on disk changed, or a queue has another file."""
        with self._publishing:
            self.config_generation += 1
            self.positions.publish_config_generation(self.config_generation)

    def _drop_units(self, release: Callable[[], int]) -> None:
        """Take what releases queue files out of the durable count of units."""
        self.checkpointer.drop_units(lambda: self.dispatch.drop_units(release))

    def _next_file(self, start_offset: int) -> MappedFile:
        mapped = self._allocator.take(start_offset)
        self._files.add(mapped)
        return mapped

    def committed_file(self, commit_offset: int) -> MappedFile | None:
        """Return the log file that holds a byte, brought there from the pool if need be; None without one."""
        log = self.log
        if commit_offset >= log.committed_offset and self.committer is not None:
            self.committer.step()  # a pool buffer lacks what was committed before
        return log.files.find(commit_offset) if commit_offset < log.committed_offset else None

    def record_at(self, commit_offset: int) -> tuple[ByteArray | None, int]:
        """Return what stands at a commit offset, None if it is no record of that place, and what its check stopped at."""
        file = self.committed_file(commit_offset)
        if file is None:
            return None, STOP_END
        position = commit_offset - file.start_offset
        size, stop = check_one(file.array, position, file.size, commit_offset)
        return file.array[position : position + size] if size else None, stop

    def settle(self) -> int:
        """Flush and dispatch everything that was appended before the call; return its end."""
        end_offset = self.log.appended_offset
        if self.committer is not None:
            self.committer.step()
        self.flusher.step()
        if not self.dispatch.wait(end_offset, DRAIN_TIMEOUT_S):
            raise StoreFailed(f"dispatch is stuck: {self.dispatch.problem or 'no progress'}")
        return end_offset

    # ---- the end

    def close(self) -> None:
        """Stop in the order in which bytes travel, so that each worker finishes its part."""
        clean = False
        try:
            clean = self._drain()
        finally:
            self._let_go(clean=clean)

    def _abandon(self) -> None:
        """Undo a start that failed half-way."""
        try:
            self._stop_workers()
        finally:
            self._let_go(clean=False)

    def _let_go(self, *, clean: bool) -> None:
        with ExitStack() as parts:  # from the last to the first, each whatever the others say
            parts.callback(self._lock.release)
            parts.callback(self.positions.close)
            parts.callback(self.states.close)
            if clean:
                parts.callback(self._mark_stopped)
            parts.callback(self.queues.close)
            parts.callback(self._files.close)
            if self._pool is not None:
                parts.callback(self._pool.close)
            parts.callback(self._allocator.close)
            parts.callback(self.positions.publish_writable, False)

    def _mark_stopped(self) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.unlink(self.paths.abort)
        self.filesystem.sync_directory(self.paths.root)

    def _stop_workers(self) -> bool:
        """Stop each worker after its part; return whether all did theirs."""
        complete = True
        for background in (self.scrub, self.queue_rebuild, self.retention):
            with suppress(StoreError):
                background.stop()
        for worker in self._in_order_of_bytes():
            try:
                worker.stop()
            except StoreError:
                complete = False
        return complete and self.failure is None

    def _drain(self) -> bool:
        """Stop the workers; return whether all is durable and the checkpoint says so."""
        log = self.log
        if (
            not self._stop_workers()
            or not log.flushed_offset == log.appended_offset == self.dispatch.position
        ):
            return False
        try:
            self.checkpointer.checkpoint(clean=True)
        except StoreError:
            return False
        return True
