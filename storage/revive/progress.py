"""How far checkpoints are settled, as a start needs it: ``config/revive.json`` and a broker's own entry.

Both only save reading: the log itself has an acknowledgement for each message that was handed out again. A
broker keeps the last queue offset that it settled as offset of its group CID_RMQ_SYS_REVIVE_GROUP in
``consumerOffset.json``; ours are the next ones. A broker's count where one ran since our last writer.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from storage.errors import StoreError, StoreFull, StoreLocked
from storage.revive.checkpoints import REVIVE_GROUP
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.own_document import load_document, save_document

if TYPE_CHECKING:
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.filesystem import FileSystem

REVIVE_FILE: Final = "revive.json"
ReviveProgress = dict[tuple[str, int], int]
"""The first queue offset that is not settled, by revive topic and queue id."""
_LOG: Final = logging.getLogger(__name__)


def _parsed(document: dict[str, Any]) -> ReviveProgress:
    return {
        (str(topic), int(queue_id)): int(offset) for topic, queue_id, offset in document["offsets"]
    }


class ReviveProgressFiles:
    """Reads and writes the progress of one store."""

    def __init__(self, filesystem: FileSystem, config_directory: Path, clock: Clock) -> None:
        self._filesystem = filesystem
        self._directory = config_directory
        self._clock = clock
        self._path = config_directory / REVIVE_FILE

    def load(self, *, broker_ran: bool) -> ReviveProgress:
        """Return for each queue our progress, or that of a broker that ran since, if it is further on; each holds."""
        found: ReviveProgress = {}
        try:
            found = load_document(self._filesystem, self._path, _parsed) or {}
        except (OSError, ValueError) as error:
            _LOG.warning("config/%s: %s; a broker's word counts", REVIVE_FILE, error)
        if not broker_ran:
            return found
        for topic, offsets in self._offsets().fetch_group(REVIVE_GROUP).items():
            for queue_id, settled_offset in offsets.items():
                queue = topic, queue_id
                found[queue] = max(found.get(queue, 0), settled_offset + 1)
        return found

    def _offsets(self) -> ConsumerOffsets:
        return ConsumerOffsets(self._filesystem, self._directory, self._clock)

    def save(self, progress: ReviveProgress) -> None:
        """Keep the progress; durable on return. Raises StoreFull with nothing changed, OSError."""
        offsets = [
            [topic, queue_id, next_] for (topic, queue_id), next_ in sorted(progress.items())
        ]
        save_document(self._filesystem, self._path, {"offsets": offsets})

    def hand_over(self, progress: ReviveProgress) -> None:
        """Write the progress where a broker reads it, unless a reader keeps that table or there is no room.

        A broker that finds it older, or none, reads more of the queues, and comes to the same.
        """
        offsets = self._offsets()
        with suppress(StoreLocked, StoreFull):
            for (topic, queue_id), next_offset in progress.items():
                if next_offset > 0:
                    offsets.commit(REVIVE_GROUP, topic, queue_id, next_offset - 1)
            try:
                offsets.close()
            except StoreError as error:
                _LOG.warning("the progress of checkpoints is not handed over: %s", error)
