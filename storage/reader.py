"""The reading half of a store: pulls, single messages, offsets and consumer progress.

A reader needs no lock and owns nothing but the consumer offsets. What is visible it learns from the
writer's positions in the checkpoint page; without a writer's word (a broker's store) everything that
the consume queues hold is visible. The writer may die and come back under a reader at any time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Container
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from storage.clock import Clock, SystemClock
from storage.commit_log_view import EVERYTHING, CommitLogView
from storage.config import StoreConfig
from storage.consume_queue_view import ConsumeQueueView
from storage.consumer_offsets import ConsumerOffsets
from storage.durable_positions import DurablePositions
from storage.errors import (
    DamagedRecord,
    NotAStore,
    QueueNotFound,
    RecordNotFound,
    StoreClosed,
    TopicNotFound,
)
from storage.files.filesystem import FileSystem, OsFileSystem
from storage.format.message_id import decode_message_id
from storage.format.names import parse_file_name
from storage.index_file import IndexShape
from storage.kernels.columns import STOP_END
from storage.key_query import KeyIndex, query_by_key
from storage.layout import StorePaths, check_is_store, load_settings, with_settled_sizes
from storage.message import KeyQueryResult, PullResult, PullStatus
from storage.positions import CheckpointFile, Role
from storage.pull import MATCH_ALL, NO_LIMIT, PENSTOCK, PullPolicy, TagFilter, pull_queue, stop_text
from storage.queue_extent import QueueExtent, queue_extent
from storage.time_search import Boundary, exact
from storage.topics import TopicTable

QUEUES_MAX: Final = 4_096  # queue views kept; each may map a file


class StoreReader:
    """Read access to a store directory; all methods may be called from any thread."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig,
        filesystem: FileSystem,
        clock: Clock,
        *,
        bounds: tuple[int, int] | None,
    ) -> None:
        self.directory = directory
        paths = self._paths = StorePaths(directory)
        self._filesystem = filesystem
        self._fixed_bounds = bounds
        self._guard = threading.RLock()
        self._queues: OrderedDict[tuple[str, int], ConsumeQueueView] = OrderedDict()
        self._filters: dict[str, TagFilter] = {"": MATCH_ALL}
        self._positions: CheckpointFile | None = None
        self._durable: DurablePositions | None = None
        self._session = 0
        self._generation = 0
        self._closed = False
        self.log = CommitLogView(
            filesystem, paths.commit_log, mapped_files_max=config.mapped_files_max
        )
        self.topics = TopicTable(filesystem, paths.config)
        self.consumer_offsets = ConsumerOffsets(filesystem, paths.config, clock)
        shape = IndexShape(config.index_slot_count, config.index_entry_count)
        self.index = KeyIndex(filesystem, paths.index, shape, lambda: self._positions)
        self._update()

    @classmethod
    def open(
        cls,
        directory: Path | str,
        config: StoreConfig | None = None,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        bounds: tuple[int, int] | None = None,
    ) -> StoreReader:
        """Open a store for reading. Raises NotAStore if there is no store in ``directory``.

        ``config`` matters for the index alone, and only where neither the store's settings nor the
        index files themselves tell how they were made; sizes of other files are told by the files.
        ``bounds`` (commit offsets) fix what is visible, instead of the writer's positions.
        """
        directory = Path(directory)
        filesystem = filesystem or OsFileSystem()
        if not filesystem.exists(directory):
            raise NotAStore(f"{directory} does not exist")
        check_is_store(filesystem, directory)
        paths = StorePaths(directory)
        settings = load_settings(filesystem, paths)
        config = with_settled_sizes(filesystem, paths, config or StoreConfig(), settings)
        return cls(
            directory,
            config,
            filesystem,
            clock or SystemClock(),
            bounds=bounds,
        )

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files; slices that were handed out stay good."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            with ExitStack() as parts:  # each whatever the others say
                if self._positions is not None:
                    parts.callback(self._positions.close)
                parts.callback(self.index.close)
                parts.callback(self.log.close)
                for queue in self._queues.values():
                    parts.callback(queue.close)
                parts.callback(self.consumer_offsets.close)
            self._queues.clear()

    # ---- what is visible

    @property
    def positions(self) -> CheckpointFile | None:
        """The checkpoint page, to wait on; None while no writer of ours has ever run here."""
        self._update()
        return self._positions

    @property
    def visible_offset(self) -> int:
        """Commit offset up to which records are served."""
        self._update()
        return self.log.end_offset

    @property
    def min_commit_offset(self) -> int:
        """Commit offset of the oldest record kept."""
        self._update()
        return self.log.min_offset

    @property
    def indexed_offset(self) -> int:
        """Commit offset up to which records are found by key."""
        self._update()
        positions = self._positions
        if positions is not None and positions.indexer_is_current:
            return positions.indexed_offset
        return self.index.end_offset

    def refresh(self) -> None:
        """Look again at everything on disk; needed only where no writer publishes positions."""
        with self._guard:
            self._update()
            self.log.refresh()
            self.topics.reload()
            self.index.refresh()

    def _update(self) -> None:
        """Take over what the writer has published since."""
        if self._closed:
            raise StoreClosed("the reader is closed")
        if self._fixed_bounds is not None:
            self.log.set_bounds(*self._fixed_bounds)
            return
        positions = self._positions
        if positions is None:
            positions = self._open_positions()
        if positions is None:
            self.log.set_bounds(0, EVERYTHING)
        elif positions.writer_is_current:
            if positions.writer_session != self._session:
                self._begin_session(positions)
            if positions.config_generation != self._generation:
                with self._guard:
                    self._generation = positions.config_generation
                    self.topics.reload()
            bounds = (positions.min_commit_offset, positions.dispatched_offset)
            if bounds != self.log.bounds:
                with self._guard:
                    self.log.set_bounds(*bounds)
        else:
            # Nobody has published since the machine started: only what was durable is sure.
            durable = self._durable
            trusted = durable is not None and durable.trusted
            self.log.set_bounds(0, durable.dispatched_offset if durable and trusted else EVERYTHING)

    def _open_positions(self) -> CheckpointFile | None:
        with self._guard:
            if self._positions is None:
                with suppress(FileNotFoundError):
                    self._positions = CheckpointFile.open(
                        self._filesystem, self._paths.checkpoint, Role.READER
                    )
                    self._durable = self._positions.durable.load()
            return self._positions

    def _begin_session(self, positions: CheckpointFile) -> None:
        """A writer started: recovery may have changed what was known of files and queues."""
        with self._guard:
            if positions.writer_session == self._session:
                return
            self._session = positions.writer_session
            self.log.refresh()
            self.topics.reload()
            for queue in self._queues.values():
                queue.reset()

    # ---- queues

    def queue_view(self, topic: str, queue_id: int) -> ConsumeQueueView:
        """Return the view of one queue, whether it has files or not."""
        key = (topic, queue_id)
        with self._guard:
            queue = self._queues.get(key)
            if queue is None:
                directory = self._paths.consume_queue / topic / str(queue_id)
                queue = self._queues[key] = ConsumeQueueView(self._filesystem, directory)
                while len(self._queues) > QUEUES_MAX:
                    self._queues.popitem(last=False)
            else:
                self._queues.move_to_end(key)
            return queue

    def queues_on_disk(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue that has a directory, sorted."""
        found: list[tuple[str, int]] = []
        for topic in self._filesystem.list_directory(self._paths.consume_queue):
            if topic.is_directory:
                for queue in self._filesystem.list_directory(
                    self._paths.consume_queue / topic.name
                ):
                    queue_id = parse_file_name(queue.name)
                    if queue.is_directory and queue_id is not None:
                        found.append((topic.name, queue_id))
        return sorted(found)

    def _known_queue(self, topic: str, queue_id: int) -> ConsumeQueueView | None:
        """Return the queue's view, None if the topic has no such queue. Raises TopicNotFound."""
        if (topic, queue_id) in self._queues:
            return self.queue_view(topic, queue_id)
        if topic in self.topics:
            if 0 <= queue_id < self.topics.get(topic).queue_count:
                return self.queue_view(topic, queue_id)
        elif not self._has_queues(topic):
            raise TopicNotFound(topic)
        if queue_id >= 0 and self._filesystem.exists(
            self._paths.consume_queue / topic / str(queue_id)
        ):
            return self.queue_view(topic, queue_id)
        return None

    def _has_queues(self, topic: str) -> bool:
        """Whether a topic that no table knows has queues all the same."""
        return (
            "/" not in topic
            and topic not in ("", ".", "..")
            and self._filesystem.exists(self._paths.consume_queue / topic)
        )

    def _existing_queue(self, topic: str, queue_id: int) -> ConsumeQueueView:
        self._update()
        queue = self._known_queue(topic, queue_id)
        if queue is None:
            count = self.topics.get(topic).queue_count if topic in self.topics else 0
            raise QueueNotFound(topic, queue_id, count)
        return queue

    def pull(
        self,
        topic: str,
        queue_id: int,
        *,
        queue_offset: int,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        tag_expression: str = "",
        policy: PullPolicy = PENSTOCK,
        end_offset: int = NO_LIMIT,
    ) -> PullResult:
        """Return records of one queue, none from ``end_offset`` on; the status says why there are none.

        Raises TopicNotFound. A queue that the topic does not have is a status.
        """
        self._update()
        queue = self._known_queue(topic, queue_id)
        if queue is None:
            return PullResult(
                status=PullStatus.NO_MATCHED_LOGIC_QUEUE, next_offset=0, min_offset=0, max_offset=0
            )
        return pull_queue(
            self.log,
            queue,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag_filter=self._tag_filter(tag_expression),
            policy=policy,
            end_offset=end_offset,
        )

    def queue_extents(
        self, topics: Container[str] | None = None, *, estimate_bytes: bool = False
    ) -> list[QueueExtent]:
        """Return how far each queue on disk goes, of all topics or of some, sorted."""
        self._update()
        return [
            queue_extent(
                self.log,
                self.queue_view(topic, queue_id),
                topic,
                queue_id,
                estimate_bytes=estimate_bytes,
            )
            for topic, queue_id in self.queues_on_disk()
            if topics is None or topic in topics
        ]

    @property
    def store_id(self) -> str:
        """What the writer has named the store, in hexadecimal; empty for a store without a name."""
        return load_settings(self._filesystem, self._paths).store_id.hex()

    def _tag_filter(self, expression: str) -> TagFilter:
        tag_filter = self._filters.get(expression)
        if tag_filter is None:
            tag_filter = TagFilter(expression)
            if len(self._filters) >= 256:
                self._filters = {"": MATCH_ALL}
            self._filters[expression] = tag_filter
        return tag_filter

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next visible message will have."""
        return self._existing_queue(topic, queue_id).max_offset(self.log.visible_offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the oldest message kept."""
        queue = self._existing_queue(topic, queue_id)
        return queue.min_offset(self.log.min_offset, queue.max_offset(self.log.visible_offset))

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        *,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the queue offset of the first message stored at or after a time (lower), or of
        the last at or before it (upper); the maximum or minimum if there is none.
        """
        queue = self._existing_queue(topic, queue_id)
        side = Boundary.LOWER if boundary == "lower" else Boundary.UPPER
        return exact(self.log, queue, timestamp_ms=timestamp_ms, boundary=side)

    # ---- single messages

    def message(self, commit_offset: int) -> memoryview:
        """Return the record that starts at a commit offset, read-only and not copied.

        Raises RecordNotFound, or DamagedRecord if the record's bytes are not what was stored.
        """
        self._update()
        size, stop = self.log.check(commit_offset)
        if size and stop != STOP_END:
            raise DamagedRecord(commit_offset, size, stop_text(stop))
        record = self.log.bytes_at(commit_offset, size) if size else None
        if record is None:
            raise RecordNotFound(commit_offset)
        return record.toreadonly()

    def message_by_id(self, message_id: str) -> memoryview:
        """Return the record that an offset message id names. Raises ValueError for no such id."""
        return self.message(decode_message_id(message_id).commit_offset)

    def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        unique: bool = False,
        begin_timestamp_ms: int = 0,
        end_timestamp_ms: int | None = None,
        max_messages: int = 32,
        page_token: str = "",
    ) -> KeyQueryResult:
        """Return the newest messages of a topic that carry a key, a page at a time.

        Topic, key and store time are compared in the records themselves. Raises TopicNotFound, and
        InvalidMessage for an empty key or a foreign token; IndexIncomplete while the index lacks
        what it had.
        """
        self._update()
        if topic not in self.topics and not self._has_queues(topic):
            raise TopicNotFound(topic)
        return query_by_key(
            self.log,
            self.index,
            topic=topic,
            key=key,
            unique=unique,
            begin_timestamp_ms=begin_timestamp_ms,
            end_timestamp_ms=end_timestamp_ms,
            max_messages=max_messages,
            page_token=page_token,
            indexed_offset=self.indexed_offset,
        )

    # ---- consumer groups

    def commit_offset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> int:
        """Set a group's progress, clamped to the queue's range; return what was set.

        Durable with the next save of the offsets.
        """
        low, high = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        queue_offset = min(max(queue_offset, low), high)
        self.consumer_offsets.commit(group, topic, queue_id, queue_offset)
        return queue_offset

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return a group's progress in a queue, None if it has none."""
        return self.consumer_offsets.fetch(group, topic, queue_id)
