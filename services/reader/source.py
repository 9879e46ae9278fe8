"""What the service adds to the engine's reader: waits, checked and saved offsets, its status."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from services.rpc.status import InvalidArgument
from storage.errors import StoreError
from storage.files.directory_lock import LockRole
from storage.format.names import RETRY_PREFIX, group_name_problem
from storage.reader import StoreReader
from storage.tables.topics import TopicConfig
from storage.view.queues.arrived import ArrivedQueues, Queue

_LOOK_SECONDS: Final = 0.05
_INDEX_LAG_BYTES_MAX: Final = 64 << 20  # an indexer that lags more is not waited for


class IndexProgress:
    """The indexer's word in the checkpoint page, to wait on."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    @property
    def change_word(self) -> int:
        """Differs after every step of the indexer."""
        positions = self._reader.positions
        return 0 if positions is None else positions.indexer_word

    def wait_for_change(self, seen_word: int, timeout_s: float) -> int:
        """Sleep until the indexer has made a step."""
        positions = self._reader.positions
        if positions is not None:
            return positions.wait_for_indexer(seen_word, timeout_s)
        time.sleep(_LOOK_SECONDS)
        return self.change_word


class QueueChanges:
    """Which queues got messages since they were looked at last; see ``services.arrivals.ChangedKeys``."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._arrived = ArrivedQueues(reader.log)
        self._beside: tuple[object, ...] | None = None

    @property
    def position(self) -> int:
        """Commit offset up to where it has looked, of what is visible now.

        What is visible may end before that: without a writer's word all of a broker's files seem to be.
        """
        return min(self._arrived.position, self._reader.visible_offset)

    @property
    def end(self) -> int:
        """Commit offset up to which records are visible."""
        return self._reader.visible_offset

    def look(self) -> Collection[Queue | str] | None:
        """Return the queues that got messages, and their topics; None if that is not known, or more changed.

        Where a retry topic is among them, so is ``RETRY_PREFIX``.
        """
        positions = self._reader.positions
        found = self._arrived.look(self._reader.visible_offset)
        if positions is None:
            return None
        beside = (
            positions.writer_session, positions.writer_is_writable,
            positions.config_generation, positions.min_commit_offset,
        )  # fmt: skip
        if beside != self._beside:
            self._beside = beside
            return None
        if not found:
            return found
        topics = {topic for topic, _ in found}
        retries = {RETRY_PREFIX for topic in topics if topic.startswith(RETRY_PREFIX)}
        return {*found, *topics, *retries}


class Source:
    """A ``StoreReader``, and around it the few things that only a service needs."""

    def __init__(self, reader: StoreReader) -> None:
        self.reader = reader

    @property
    def change_word(self) -> int:
        """Differs after every change that the writer publishes."""
        positions = self.reader.positions
        return 0 if positions is None else positions.writer_word

    def wait_for_change(self, seen_word: int, timeout_s: float) -> int:
        """Sleep until the writer publishes something; without one look at the files again."""
        positions = self.reader.positions
        if positions is not None:
            return positions.wait_for_writer(seen_word, timeout_s)
        time.sleep(_LOOK_SECONDS)
        with suppress(StoreError, OSError):  # the next read meets it, too
            self.reader.refresh()
        return self.change_word

    @property
    def queue_changes(self) -> QueueChanges:
        """What says which queues got messages."""
        return QueueChanges(self.reader)

    @property
    def index_progress(self) -> IndexProgress:
        """What announces the indexer's steps."""
        return IndexProgress(self.reader)

    @property
    def visible_offset(self) -> int:
        """See ``StoreReader.visible_offset``."""
        return self.reader.visible_offset

    @property
    def indexed_offset(self) -> int:
        """See ``StoreReader.indexed_offset``."""
        return self.reader.indexed_offset

    def pending_offset(self) -> int:
        """Return the end of what was appended if it is to become visible soon, else 0."""
        end = self._appended_offset()
        return end if end > self.visible_offset and self._writer_is_alive() else 0

    def pending_index_offset(self) -> int:
        """Return the end of what was appended if it is to be indexed soon, else 0."""
        end, indexed_offset = self._appended_offset(), self.indexed_offset
        positions = self.reader.positions
        if positions is None or not indexed_offset < end <= indexed_offset + _INDEX_LAG_BYTES_MAX:
            return 0
        # Its lock and not its word in the page: it has said nothing yet while it only starts.
        return end if self._writer_is_alive() and self._is_held(LockRole.INDEXER) else 0

    def ask_for_index(self) -> None:
        """Have an indexer that gathers go on now; it may miss that, so ask again after a moment."""
        positions = self.reader.positions
        if positions is not None:
            positions.indexer_wake.knock()

    def _appended_offset(self) -> int:
        """Return the end of what a running writer of ours has appended, 0 without one."""
        positions = self.reader.positions
        if positions is None or not positions.writer_is_current:
            return 0
        return positions.appended_offset if positions.writer_is_writable else 0

    def described(self, names: Iterable[str]) -> list[TopicConfig]:
        """Return the entries of the topic table of these names, as far as it has them."""
        found = map(self.reader.topics.find, sorted(set(names)))
        return [topic for topic in found if topic is not None]

    def group_offsets(
        self, group: str, is_wanted: Callable[[], bool]
    ) -> Mapping[str, Mapping[int, int]]:
        """Return a group's progress by topic and queue id. Raises for a name that cannot be one.

        ``is_wanted`` is as in ``StoreReader.committed_offsets``.
        """
        problem = group_name_problem(group)
        if problem:
            raise InvalidArgument("group", problem)
        return self.reader.committed_offsets(group, is_wanted=is_wanted)

    def groups(self) -> Sequence[str]:
        """Return the names of all groups with progress."""
        return self.reader.consumer_offsets.groups()

    def status(self) -> Mapping[str, Any]:
        """Return the fields of ReaderStatus."""
        return {
            "min_commit_offset": self.reader.min_commit_offset,
            "visible_offset": self.reader.visible_offset,
            "indexed_offset": self.reader.indexed_offset,
            "writer_alive": self._writer_is_alive(),
        }

    def _writer_is_alive(self) -> bool:
        return self._is_held(LockRole.WRITER)

    def _is_held(self, role: LockRole) -> bool:
        try:
            return self.reader.is_held(role)
        except OSError:
            return False

    def close(self) -> None:
        """Close the store's files."""
        self.reader.close()
