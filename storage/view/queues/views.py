"""The consume queues of a store as a reader sees them: views that are kept, and what is on disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from storage.files import open_files
from storage.view.layout import queues_on_disk
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.rebuilt_units import RebuiltUnits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.view.log.parts import RecordSource
    from storage.view.queues.reach import QueueReach

QUEUES_MAX: Final = 4_096  # views kept; each may map some files, so less where few may be open


class QueueViews:
    """Views by topic and queue id, the least used let go. Safe to use from several threads.

    ``since`` gives the commit offset from which on a topic's records are in its queues, ``reach`` how far
    queues go that lack units.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        log: RecordSource,
        since: Callable[[str], int],
        reach: QueueReach,
    ) -> None:
        self._filesystem = filesystem
        self._reach = reach
        self._log = log
        self._since = since
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
        directory = self._directory / topic / str(queue_id)
        rebuilt = RebuiltUnits(self._log, topic, queue_id, partial(self._since, topic))
        return ConsumeQueueView(
            self._filesystem, directory, rebuilt, reach=partial(self._reach.of, topic, queue_id)
        )

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

    def on_disk(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue that has a directory, sorted."""
        return sorted(queues_on_disk(self._filesystem, self._directory))

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
        self._reach.forget()
        with self._guard:
            self._kept.clear()

    def end(self) -> None:
        """End walks of the log with StoreClosed, from here on."""
        self._reach.end()

    def close(self) -> None:
        """Let go of every view."""
        with self._guard, ExitStack() as views:  # each whatever the others say
            for queue in self._kept.values():
                views.callback(queue.close)
            self._kept.clear()
