"""The consume queues of a store as a reader sees them: views that are kept, and what is on disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from storage.files import open_files
from storage.view.layout import queues_of_topic, queues_on_disk
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.queue_files import heads

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.files.only_files import OnlyFile
    from storage.view.log.commit_log import CommitLogView

QUEUES_MAX: Final = 4_096  # views kept; each may map some files, so less where few may be open


class QueueViews:
    """Views by topic and queue id, the least used let go. Safe to use from several threads.

    ``since`` gives the commit offset from which on a topic's records are in its queues. ``check`` is called with
    topic, queue id and queue offset before units are rebuilt in memory.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        log: CommitLogView,
        since: Callable[[str], int],
        check: Callable[[str, int, int], None],
    ) -> None:
        self._filesystem = filesystem
        self._log = log
        self._since = since
        self._check = check
        self._directory = directory
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], ConsumeQueueView] = OrderedDict()
        self._kept_max = open_files.at_most(QUEUES_MAX, share=8)

    def get(self, topic: str, queue_id: int) -> ConsumeQueueView:
        """Return the view of one queue, whether it has files or not."""
        key = (topic, queue_id)
        with self._guard:
            queue = self._kept.get(key)
            if queue is None:
                queue = self._kept[key] = self._new(topic, queue_id)
                while len(self._kept) > self._kept_max:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
            return queue

    def _new(self, topic: str, queue_id: int) -> ConsumeQueueView:
        return ConsumeQueueView(
            self._filesystem, self._directory / topic / str(queue_id), self._log,
            since=partial(self._since, topic), check=partial(self._check, topic, queue_id),
        )  # fmt: skip

    @contextmanager
    def lent(self, topic: str, queue_id: int, *, among: int) -> Iterator[ConsumeQueueView]:
        """Lend the view of one queue among so many; where they are more than are kept, no other goes for it."""
        few = among <= self._kept_max
        kept = self.get(topic, queue_id) if few else self.find(topic, queue_id)
        if kept is not None:
            yield kept
            return
        queue = self._new(topic, queue_id)
        try:
            yield queue
        finally:
            queue.close()

    def find(self, topic: str, queue_id: int) -> ConsumeQueueView | None:
        """Return the view of one queue if it is kept."""
        key = (topic, queue_id)
        with self._guard:
            queue = self._kept.get(key)
            if queue is not None:
                self._kept.move_to_end(key)
            return queue

    def on_disk(self, topics: Container[str] | None = None) -> list[tuple[str, int]]:
        """Return topic and id of every queue that has a directory, of all topics or of some, sorted."""
        found = queues_on_disk(self._filesystem, self._directory, topics)
        return [
            (topic, queue_id)
            for topic, queues in groupby(found, key=itemgetter(0))
            for queue_id in sorted(number for _, number in queues)
        ]

    def topics_on_disk(self, known: Container[str]) -> list[str]:
        """Return the topics that have a queue's directory and are not among the known ones, sorted."""
        return [
            entry.name
            for entry in self._filesystem.list_directory(self._directory)
            if entry.is_directory
            and entry.name not in known
            and any(True for _ in queues_of_topic(self._filesystem, self._directory, entry.name))
        ]

    def heads(
        self, queues: Sequence[tuple[str, int]]
    ) -> Iterator[tuple[str, int, ConsumeQueueView | OnlyFile | None]]:
        """Yield queues with the view of each if it is kept, or else its only file.

        None for one that has no file or more of them, and for few queues: their views are to be kept.
        """
        if len(queues) <= self._kept_max:
            yield from ((topic, queue_id, None) for topic, queue_id in queues)
            return
        for topic, of_topic in groupby(queues, key=itemgetter(0)):
            queue_ids = [queue_id for _, queue_id in of_topic]
            found = heads(self._filesystem, self._directory / topic, queue_ids)
            for _, queue_id, file in found:
                yield topic, queue_id, self.find(topic, queue_id) or file

    def is_on_disk(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has a directory."""
        return queue_id >= 0 and self._filesystem.exists(self._directory / topic / str(queue_id))

    def has_topic(self, topic: str) -> bool:
        """Whether a topic has a directory, whatever tables know of it."""
        return (
            "/" not in topic
            and topic not in ("", ".", "..")
            and self._filesystem.exists(self._directory / topic)
        )

    def forget(self) -> None:
        """Let go of every view: files were repaired or deleted, and those of that name are others.

        Whoever has one at hand may go on reading what it was.
        """
        with self._guard:
            self._kept.clear()

    def close(self) -> None:
        """Let go of every view."""
        with self._guard, ExitStack() as views:  # each whatever the others say
            for queue in self._kept.values():
                views.callback(queue.close)
            self._kept.clear()
