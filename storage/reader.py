"""The reading half of a store: pulls, single messages, offsets and consumer progress.

A reader needs no lock and owns nothing but the consumer offsets. What is visible it learns from the
writer's positions in the checkpoint page; without a writer's word (a broker's store) everything that
the consume queues hold is visible. The writer may die and come back under a reader at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from storage.checkpoint.positions import CheckpointFile
from storage.clock import Clock, SystemClock
from storage.config import StoreConfig
from storage.errors import (
    DamagedRecord,
    NotAStore,
    QueueNotFound,
    RecordNotFound,
    TopicNotFound,
)
from storage.files.directory_lock import DirectoryLock, LockRole, has_writer
from storage.files.filesystem import FileSystem
from storage.format.message_id import decode_message_id
from storage.kernels.columns import STOP_END, stop_text
from storage.message import KeyQueryResult, PullResult, PullStatus
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.groups import GroupTable
from storage.tables.topic_table import TopicTable
from storage.view.file_sizes import with_settled_sizes
from storage.view.group_progress import GroupProgress
from storage.view.incarnations import Incarnations
from storage.view.index.index_file import IndexShape
from storage.view.index.key_index import KeyIndex
from storage.view.index.key_query import query_by_key
from storage.view.layout import StorePaths, check_is_store
from storage.view.log.commit_log import EVERYTHING, CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.extent import Extents, QueueExtent
from storage.view.queues.pull import NO_LIMIT, pull_queue
from storage.view.queues.rebuild_requests import RebuildRequests
from storage.view.queues.tag_filter import TagFilters
from storage.view.queues.time_search import Boundary, exact
from storage.view.queues.views import QueueViews
from storage.view.settings import SettingsFile, load_settings
from storage.view.visibility import Visibility


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
        self._filesystem = filesystem
        paths = StorePaths(directory)
        settings = self._settings = SettingsFile(filesystem, paths)
        self._filters = TagFilters()
        self.log = CommitLogView(
            filesystem, paths.commit_log, mapped_files_max=config.mapped_files_max
        )
        self.topics = TopicTable(filesystem, paths.config, paths.journal)
        self._queues = QueueViews(
            filesystem, paths.consume_queue, self.log, self.incarnation_of,
            RebuildRequests(filesystem, paths.rebuilds, self._has_writer).check,
        )  # fmt: skip
        self._visibility = Visibility(
            filesystem, paths.checkpoint, log=self.log, topics=self.topics, queues=self._queues,
            bounds=bounds,
        )  # fmt: skip
        self.tables_state = self._visibility.tables_state
        self.consumer_offsets = ConsumerOffsets(filesystem, paths.config, clock, settings.orders)
        self._progress = GroupProgress(self.consumer_offsets, self, self.shows_all)
        self.committed_offsets = self._progress.of_group
        self.groups = GroupTable(filesystem, paths.config, clock, self.consumer_offsets.own)
        shape = IndexShape(config.index_slot_count, config.index_entry_count)
        self.index = KeyIndex(filesystem, paths, shape, lambda: self._visibility.trusted_positions)
        self._closing = threading.Lock()  # taken once
        self._known: tuple[tuple[int, int] | None, Incarnations] = None, Incarnations()
        self._visibility.update()

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
        index files themselves show how they were made; other files show their sizes.
        ``bounds`` (commit offsets) fix what is visible, instead of the writer's positions. Reads of a store that
        was renamed or removed since raise OSError (ESTALE) where they need a file that is not mapped.
        """
        directory = Path(directory)
        filesystem = filesystem or FileSystem()
        if not filesystem.exists(directory):
            raise NotAStore(f"{directory} does not exist")
        check_is_store(filesystem, directory)
        filesystem.hold(directory)
        paths = StorePaths(directory)
        settings = load_settings(filesystem, paths)
        config = with_settled_sizes(paths, config or StoreConfig(), settings)
        return cls(directory, config, filesystem, clock or SystemClock(), bounds=bounds)

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self) -> None:
        """Refuse every read from here on; those under way end at their next look. Offsets can still be saved."""
        self._visibility.end()

    def close(self) -> None:
        """Let go of all files; slices that were handed out stay good."""
        if not self._closing.acquire(blocking=False):
            return
        self.end()
        with ExitStack() as parts:  # from the last to the first, each whatever the others say
            parts.callback(self._visibility.close)
            parts.callback(self.index.close)
            parts.callback(self.log.close)
            parts.callback(self._queues.close)
            parts.callback(self.consumer_offsets.close)

    def is_held(self, role: LockRole) -> bool:
        """Return whether any process acts in a role on the store now."""
        return DirectoryLock.is_held(self.directory, role)

    def _has_writer(self) -> bool:
        """Return whether a writer of ours runs now."""
        return self._visibility.is_written and has_writer(self.directory)

    # ---- what is visible

    @property
    def positions(self) -> CheckpointFile | None:
        """The checkpoint page, to wait on; None where no writer of ours ran, or a broker ran since."""
        self._visibility.update()
        return self._visibility.trusted_positions

    @property
    def visible_offset(self) -> int:
        """Commit offset up to which records are served."""
        self._visibility.update()
        return self.log.end_offset

    @property
    def min_commit_offset(self) -> int:
        """Commit offset of the oldest record kept."""
        self._visibility.update()
        return self.log.min_offset

    @property
    def indexed_offset(self) -> int:
        """Commit offset up to which records are found by key."""
        self._visibility.update()
        return self._indexed_offset()

    def _indexed_offset(self) -> int:
        positions = self._visibility.trusted_positions
        if positions is not None and positions.indexer_is_current:
            return positions.indexed_offset
        return self.index.end_offset

    def refresh(self) -> None:
        """Look again at everything on disk; needed only where no writer publishes positions."""
        self._visibility.refresh()
        self.index.refresh()

    # ---- queues

    def incarnation_of(self, topic: str) -> int:
        """Return the commit offset from which on a topic's records are in its queues."""
        return self._incarnations().of(topic)

    def _incarnations(self) -> Incarnations:
        # Groups' offsets are saved after the end.
        state = None if self._visibility.has_ended else self._visibility.tables_state()
        if state is not None and state == self._known[0]:
            return self._known[1]  # a writer publishes each deletion
        incarnations = self._settings.load().incarnations
        self._known = state, incarnations
        return incarnations

    def queue_view(self, topic: str, queue_id: int) -> ConsumeQueueView:
        """Return the view of one queue, whether it has files or not."""
        return self._queues.get(topic, queue_id)

    def queues_on_disk(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue that has a directory, sorted."""
        return self._queues.on_disk()

    def all_topics(self) -> list[str]:
        """Return every topic that the table or a queue's directory names, sorted."""
        known = frozenset(topic.name for topic in self.topics)
        return sorted([*known, *self._queues.topics_on_disk(known)])

    def _known_queue(self, topic: str, queue_id: int) -> ConsumeQueueView | None:
        """Return the queue's view, None if the topic has no such queue. Raises TopicNotFound."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None:
            return queue
        if topic in self.topics:
            if 0 <= queue_id < self.topics.get(topic).queue_count:
                return self._queues.get(topic, queue_id)
        elif not self._queues.has_topic(topic):
            raise TopicNotFound(topic)
        if self._queues.is_on_disk(topic, queue_id):
            return self._queues.get(topic, queue_id)
        return None

    def _existing_queue(self, topic: str, queue_id: int) -> ConsumeQueueView:
        self._visibility.update()
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
        end_offset: int = NO_LIMIT,
    ) -> PullResult:
        """Return records of one queue, none from ``end_offset`` on; the status says why there are none.

        Raises TopicNotFound, and InvalidMessage for a topic that may not be read. A queue that the topic does
        not have, or not to read, is a status.
        """
        self._visibility.update()
        is_read = self.topics.is_read(topic, queue_id)
        queue = self._known_queue(topic, queue_id) if is_read else None
        if queue is None:
            return PullResult(
                status=PullStatus.NO_MATCHED_LOGIC_QUEUE, next_offset=0, min_offset=0, max_offset=0
            )
        return pull_queue(
            self.log, queue, topic=topic, queue_id=queue_id, queue_offset=queue_offset,
            max_messages=max_messages, max_bytes=max_bytes,
            tag_filter=self._filters.get(tag_expression), end_offset=end_offset,
        )  # fmt: skip

    def queue_extents(
        self,
        topics: Container[str] | None = None,
        *,
        estimate_bytes: bool = False,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> list[QueueExtent]:
        """Return how far each queue on disk goes, of all topics or of some, sorted.

        A topic that is being deleted has none. ``is_wanted`` is asked before each queue: raises
        StoreClosed once it says no.
        """
        while True:
            settings = self._settings.load()
            self._visibility.update()  # after the settings: what they say is gone is forgotten here
            incarnations = settings.incarnations
            queues = [
                queue
                for queue in self._queues.on_disk(topics)
                if queue[0] != incarnations.deleting_topic
            ]
            extents = Extents(
                self.log, self._queues, estimate_bytes=estimate_bytes,
                incarnations=incarnations if settings.present else None,
            ).of(queues, is_wanted)  # fmt: skip
            if self._settings.load() == settings:
                return extents

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when a record was stored, at most 0 if that is not known; lets no other queue's files go for it."""
        self._visibility.update()
        with self._queues.lent(topic, queue_id, among=EVERYTHING) as queue:
            unit = queue.unit(queue_offset)
        return self.log.record_time_ms(*unit[:2]) if unit.size > 0 else 0

    @property
    def store_id(self) -> str:
        """What the writer has named the store, in hexadecimal; empty for a store without a name."""
        return self._settings.load().store_id.hex()

    def max_offset(self, topic: str, queue_id: int, at: int = EVERYTHING) -> int:
        """Return the queue offset that the next visible message will have; ``at`` as in ``ConsumeQueueView``."""
        return self._existing_queue(topic, queue_id).max_offset(self.log.visible_offset, at)

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
        self._visibility.update()
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

        Topic, key and store time are compared in the records themselves; those of a former topic of the
        name do not count. The range of a missing index file is named as ``uncovered``. Raises TopicNotFound,
        and InvalidMessage for an empty key or a foreign token.
        """
        self._visibility.update()
        if topic not in self.topics and not self._queues.has_topic(topic):
            raise TopicNotFound(topic)
        return query_by_key(
            self.log,
            self.index,
            topic=topic,
            since_offset=self.incarnation_of(topic),
            key=key,
            unique=unique,
            begin_timestamp_ms=begin_timestamp_ms,
            end_timestamp_ms=end_timestamp_ms,
            max_messages=max_messages,
            page_token=page_token,
            indexed_offset=self._indexed_offset,
        )

    # ---- consumer groups

    def commit_offset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> int:
        """Set a group's progress, clamped to the queue's range; return what was set. Durable with the next save."""
        return self._progress.commit(group, topic, queue_id, queue_offset)

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return a group's progress in a queue, at most the queue's end; None if it has none."""
        return self._progress.of_queue(group, topic, queue_id)

    def shows_all(self) -> bool:
        self._visibility.update()
        return self._visibility.shows_all
