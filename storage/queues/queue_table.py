"""All consume queues of a store, each made when first asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from storage.format.consume_entry import PREFILL_SIZE
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_files import OpenQueueFiles
from storage.view.layout import queues_of_topic, queues_on_disk
from storage.view.log.commit_log import EVERYTHING
from storage.view.queues.queue_files import QueueFiles

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem


class LostUnits(NamedTuple):
    """Queue offsets ``[begin, end)`` of a queue that the end of a file was to hold, and does not."""

    topic: str
    queue_id: int
    begin: int
    end: int


class UnitCount(NamedTuple):
    """How many units queue files hold, those that their ends lost included; and the lost ones."""

    units: int
    lost: list[LostUnits]


class QueueTable:
    """Queues by topic and queue id; queues are looked up under the files' guard."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, file_size: int) -> None:
        self.directory = directory
        self.end_commit_offset: int | None = None
        self._filesystem = filesystem
        self._files = OpenQueueFiles(filesystem, directory, file_size=file_size)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._removing: dict[str, int] = {}  # units of topics whose removal has begun

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; it need not have files yet.

        Once recovery has set ``end_commit_offset``, a queue met for the first time ends after its last
        unit below that offset; before, ``next_offset`` is the caller's to set.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            with self._files.guard:
                queue = ConsumeQueue(self._files, topic, queue_id)
                if self.end_commit_offset is not None:
                    queue.next_offset = queue.find_end(self.end_commit_offset)
                queue = self._queues.setdefault((topic, queue_id), queue)
        return queue

    def held(self, key: tuple[str, int]) -> QueueFiles:
        """List the files of a queue, to read any unit of them."""
        return QueueFiles.whole(self._filesystem, self.directory / key[0] / str(key[1]))

    def count_units(self, limit_commit_offset: int) -> UnitCount:
        """Count the units that all queues' files hold before a commit offset; -1 for a lost file."""
        count = 0
        lost: list[LostUnits] = []
        for key in self.on_disk():
            queue = self._queues.get(key) or ConsumeQueue(self._files, *key)
            starts = queue.file_starts
            if not starts:
                continue
            if starts[-1] - starts[0] != (len(starts) - 1) * self._files.file_size:
                return UnitCount(-1, lost)
            count += queue.find_end(limit_commit_offset) - queue.first_offset
            lost += [LostUnits(*key, *each) for each in queue.lost_units()]
        return UnitCount(count, lost)

    def newest_record_end(self) -> int:
        """Return where the last record ends that has a unit in any queue, 0 without units."""
        newest = 0
        for key in self.on_disk():
            queue = self.get(*key)
            offset, size, _ = queue.unit(queue.find_end(EVERYTHING) - 1)
            if 0 < size < PREFILL_SIZE:
                newest = max(newest, offset + size)
        return newest

    def on_disk(self) -> Iterator[tuple[str, int]]:
        """Return ``(topic, queue_id)`` of every queue directory."""
        return queues_on_disk(self._filesystem, self.directory)

    def remove_topic(self, topic: str) -> int:
        """Delete every queue of a topic; durable on return. Readers' open files stay good.

        Returns how many units the queues held. Raises StoreBusy, and goes on when called again.
        """
        with self._files.guard:
            if topic not in self._removing:
                self._removing[topic] = sum(
                    self.get(topic, queue_id).unit_count
                    for queue_id in queues_of_topic(self._filesystem, self.directory, topic)
                )
            self._remove_topic(topic)
            return self._removing.pop(topic)

    def _remove_topic(self, topic: str) -> None:
        directory = self.directory / topic
        for entry in self._filesystem.list_directory(directory):
            if entry.is_directory:
                self._files.remove_directory(directory / entry.name)
        if self._filesystem.exists(directory):
            self._filesystem.remove_directory(directory)
        self._filesystem.sync_directory(self.directory)  # also of what a dead process removed
        for key in [key for key in self._queues if key[0] == topic]:
            self._queues.pop(key).forget()

    def sync(self) -> None:
        """Make every unit written before the call durable. An OSError latches with the caller."""
        self._files.sync()

    def close(self) -> None:
        """Close every open file; nothing is synced."""
        self._files.close()
        self._queues.clear()
