"""Requests of readers to the running writer: rebuild units of a queue.

A request is an empty file in ``rebuilds/``, named by queue id, queue offset and topic. A reader makes it, the
writer removes it after the rebuild. Where nobody can be asked the reader rebuilds the units in memory.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.errors import QueueRebuilding, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.files.filesystem import FileSystem

ASKED_MAX: Final = 10_000
WAIT_S: Final = 5.0  # for the writer, which may have no room to write


class RebuildRequest(NamedTuple):
    """A unit that its record does not confirm."""

    queue_id: int
    queue_offset: int
    topic: str


class RebuildRequests:
    """What this reader has asked for; ``has_writer`` says whether a writer of ours runs."""

    def __init__(
        self, filesystem: FileSystem, directory: Path, has_writer: Callable[[], bool]
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._has_writer = has_writer
        self._guard = threading.Lock()
        self._asked: dict[RebuildRequest, float] = {}  # when

    def check(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Ask the writer to rebuild a unit, once; raise QueueRebuilding until it has, for ``WAIT_S`` at most.

        Returns where there is no writer, or it cannot be asked, and after one rebuild.
        """
        request = RebuildRequest(queue_id, queue_offset, topic)
        path = self._directory / "-".join(map(str, request))
        with self._guard:
            if not self._has_writer():
                return
            if request not in self._asked:
                try:
                    self._filesystem.make_directory(self._directory, durable=False)
                    self._filesystem.create(path, 0, allocate=False).close()
                except FileExistsError:
                    pass  # another reader has asked
                except (OSError, StoreError):
                    return
                if len(self._asked) >= ASKED_MAX:
                    self._asked.clear()
                self._asked[request] = time.monotonic()
            elif not self._filesystem.exists(path):
                del self._asked[request]  # a unit that is damaged once more is asked for again
                return
            elif time.monotonic() - self._asked[request] > WAIT_S:
                return
        raise QueueRebuilding(topic, queue_id)


def pending_requests(
    filesystem: FileSystem, directory: Path
) -> Iterator[tuple[Path, RebuildRequest]]:
    """Yield the requests that the writer has not met, with their files."""
    for entry in filesystem.list_directory(directory):
        queue_id, _, rest = entry.name.partition("-")
        queue_offset, _, topic = rest.partition("-")
        if queue_id.isdecimal() and queue_offset.isdecimal() and topic:
            yield directory / entry.name, RebuildRequest(int(queue_id), int(queue_offset), topic)
