"""All consume queues of a store, each made when first asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_files import OpenQueueFiles
from storage.view.layout import queues_of_topic, queues_on_disk
from storage.view.log.commit_log import EVERYTHING

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.view.queues.record_queues import QueueKey


QUEUES_IN_A_ROW: Final = 64  # that are looked at before a rest
REST_S: Final = 0.0005


class ExpiredFiles(NamedTuple):
    """Files of a queue, by where they start, that hold nothing that the log still has."""

    queue: ConsumeQueue
    starts: list[int]


class UnitCount(NamedTuple):
    """How many units the files of all queues hold.

    ``expired`` of them are in files that retention deletes, each with ``file_units``.
    """

    units: int
    expired: int = 0
    file_units: int = 1

    def agrees(self, durable_count: int) -> bool:
        """Return whether files hold what was durable: all of it, or all but some whole files being deleted.

        Units leave the durable count some queues at a time, before their files go. So the files may hold more
        than the count, by whole expired files; never less, and never more by anything else: a file
        that lost its end or is missing makes them hold less.
        """
        more = self.units - durable_count
        return 0 <= more <= self.expired and more % self.file_units == 0


class QueueTable:
    """Queues by topic and queue id; queues are looked up under the files' guard."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, file_size: int) -> None:
        self.directory = directory
        self._end_commit_offset: int | None = None
        self._filesystem = filesystem
        self._files = OpenQueueFiles(filesystem, directory, file_size=file_size)
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._removing: dict[str, int] = {}  # units of topics whose removal has begun
        self._on_disk_first: dict[str, frozenset[int]] = {}  # queue ids, when first asked for

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; it need not have files yet.

        After recovery a queue met for the first time ends after its last unit below the end of the log;
        before, ``next_offset`` is the caller's to set.
        """
        key = topic, queue_id
        queue = self._queues.get(key)
        if queue is None:
            with self._files.guard:
                queue = self._queues.get(key)
                if queue is None:
                    queue = ConsumeQueue(self._files, *key)
                    if self._end_commit_offset is not None:
                        queue.next_offset = queue.find_end(self._end_commit_offset)
                    self._queues[key] = queue
        return queue

    def known(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, None if it never had a unit; after recovery.

        A queue without a directory is not looked at: what is made later is made here.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue
        on_disk = self._on_disk_first.get(topic)
        if on_disk is None:
            found = frozenset(queues_of_topic(self._filesystem, self.directory, topic))
            on_disk = self._on_disk_first.setdefault(topic, found)
        return self.get(topic, queue_id) if queue_id in on_disk else None

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last unit of a queue; after recovery."""
        queue = self.known(topic, queue_id)
        return 0 if queue is None else queue.next_offset

    def ranges(self, topic: str, queue_count: int, min_commit_offset: int) -> list[tuple[int, int]]:
        """Return of each queue the first offset whose record the log still has, and the next one; after recovery."""
        offsets = []
        for queue_id in range(queue_count):
            if queue_id % QUEUES_IN_A_ROW == QUEUES_IN_A_ROW - 1:
                time.sleep(REST_S)  # dispatch needs the files' guard, too, and hardly gets it else
            queue = self.known(topic, queue_id)
            first = 0 if queue is None else queue.find_first(min_commit_offset)
            offsets.append((first, 0 if queue is None else queue.next_offset))
        return offsets

    def end_recovery(self, end_commit_offset: int) -> None:
        """Say where the log ends: from here on queues are what this table writes to them."""
        self._end_commit_offset = end_commit_offset
        for key, queue in list(self._queues.items()):
            # Kept in mind, or one whose files others remove before it is used would begin again at 0.
            if queue.next_offset:  # it ends where the repair of queues has it end
                queue.forget_end()
            elif queue.exists:
                queue.next_offset = queue.find_end(end_commit_offset)
                queue.forget_end()
            else:
                del self._queues[key]

    def count_units(self, limit_commit_offset: int, min_commit_offset: int = 0) -> UnitCount:
        """Count the units that all queues' files hold before a commit offset; -1 for a lost file.

        ``min_commit_offset`` is where the log begins.
        """
        file_size = self._files.file_size
        count = expired = 0
        for key in dict.fromkeys([*self._queues, *self.on_disk()]):
            queue = self.get(*key)
            starts = queue.file_starts
            if not starts:
                continue
            if starts[-1] - starts[0] != (len(starts) - 1) * file_size:
                return UnitCount(-1)
            end = queue.find_end(limit_commit_offset)
            count += end - queue.first_offset
            expired += len(queue.expired_files(min_commit_offset, end)) * queue.units_per_file
        return UnitCount(count, expired, file_size // UNIT_SIZE)

    def newest_record_end(self) -> int:
        """Return where the last record ends that has a unit in any queue, 0 without units."""
        newest = 0
        for key in self.on_disk():
            queue = self.get(*key)
            offset, size, _ = queue.unit(queue.find_end(EVERYTHING) - 1)
            if 0 < size < PREFILL_SIZE:
                newest = max(newest, offset + size)
        return newest

    def on_disk(self) -> Iterator[QueueKey]:
        """Return ``(topic, queue_id)`` of every queue directory."""
        return queues_on_disk(self._filesystem, self.directory)

    def remove_topic(self, topic: str) -> int:
        """Delete every queue of a topic; durable on return. Readers' open files stay good.

        Returns how many units the queues held. Raises StoreBusy, and goes on when called again.
        """
        with self._files.guard:
            if topic not in self._removing:
                self._removing[topic] = sum(
                    self.get(topic, queue_id).unit_count for queue_id in self._queue_ids(topic)
                )
            self._remove_topic(topic)
            return self._removing.pop(topic)

    def _queue_ids(self, topic: str) -> set[int]:
        """Return the queues of a topic on disk, and those whose files others have removed: their units count, too."""
        return {
            *queues_of_topic(self._filesystem, self.directory, topic),
            *(queue_id for name, queue_id in self._queues if name == topic),
        }

    def _remove_topic(self, topic: str) -> None:
        directory = self.directory / topic
        for entry in self._filesystem.list_directory(directory):
            if entry.is_directory:
                self._files.remove_directory(directory / entry.name)
        if self._filesystem.exists(directory):
            self._filesystem.remove_directory(directory)
        try:  # also of what a dead process removed
            self._filesystem.sync_directory(self.directory)
        except FileNotFoundError:  # others have removed it
            self._filesystem.sync_directory(self.directory.parent)
        for key in [key for key in self._queues if key[0] == topic]:
            self._queues.pop(key).forget()
        self._on_disk_first.pop(topic, None)

    def expired_files(self, key: QueueKey, min_commit_offset: int) -> ExpiredFiles | None:
        """Return the files of a queue that hold nothing of the log from an offset on, None without any.

        After recovery. Raises StoreBusy while files cannot be opened.
        """
        with self._files.guard:
            queue = self.known(*key)
            if queue is None:
                return None
            starts = queue.expired_files(min_commit_offset, queue.next_offset)
            return ExpiredFiles(queue, starts) if starts else None

    def release_files(self, expired: ExpiredFiles) -> tuple[list[Path], int]:
        """Take files out of a queue, while nothing is dispatched; return them, and how many units they held.

        They are for the caller to ``unlink``. Nothing is taken out of a queue whose topic was deleted since.
        """
        queue, starts = expired
        with self._files.guard:
            is_same = self._queues.get((queue.topic, queue.queue_id)) is queue
            if not is_same or queue.topic in self._removing:
                return [], 0
            before = queue.unit_count
            return queue.release_files(starts), before - queue.unit_count

    def unlink(self, path: Path) -> None:
        """Delete a released file, unless its queue has it: its topic was deleted and created again.

        Not durable by itself. Raises FileNotFoundError.
        """
        with self._files.guard:
            queue = self._queues.get((path.parent.parent.name, int(path.parent.name)))
            if queue is not None and int(path.name) in queue.file_starts:
                return
            self._files.let_go(path)
            self._filesystem.unlink(path)

    @property
    def units_per_file(self) -> int:
        """How many units a file holds."""
        return self._files.file_size // UNIT_SIZE

    def make_removed_files(self, key: QueueKey, begin: int, end: int) -> list[int]:
        """Make the files of units ``[begin, end)`` again that others have removed, each as one hole; after recovery.

        Return where they start. Raises StoreFull, StoreBusy.
        """
        with self._files.guard:
            queue = None if key[0] in self._removing else self.known(*key)
            if queue is None:
                return []
            return queue.make_files(max(begin, queue.first_offset), min(end, queue.next_offset))

    @property
    def is_cut(self) -> bool:
        """Whether more was changed of the files since they were opened than that units were written."""
        return self._files.is_cut

    def doubt(self, key: QueueKey, begin: int, end: int) -> None:
        """Have the next sync cover units ``[begin, end)`` of a queue: a dead process wrote them.

        What a failed sync of that process has lost of them, a power cut takes; the start after it rebuilds them.
        """
        if begin < end:
            directory = self.directory.joinpath(key[0], str(key[1]))
            self._files.distrust(directory, begin * UNIT_SIZE, end * UNIT_SIZE)

    def sync(self) -> None:
        """Make every unit written before the call durable. An OSError latches with the caller.

        Raises StoreBusy while files cannot be opened; it may be called again.
        """
        self._files.sync()

    def close(self) -> None:
        """Close every open file; nothing is synced."""
        self._files.close()
        self._queues.clear()
