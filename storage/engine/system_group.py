"""A broker's own consumer group: its offsets in ``consumerOffset.json`` say how far a part of a broker is.

They count where a broker ran since our last writer. An orderly stop writes ours there for a broker.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.errors import StoreError, StoreFull, StoreLocked
from storage.tables.consumer_offsets import ConsumerOffsets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.filesystem import FileSystem

_LOG: Final = logging.getLogger(__name__)


class SystemGroup:
    """One such group of a store."""

    def __init__(
        self, filesystem: FileSystem, config_directory: Path, clock: Clock, name: str
    ) -> None:
        self._filesystem = filesystem
        self._directory = config_directory
        self._clock = clock
        self._name = name

    def offsets(self) -> Mapping[str, Mapping[int, int]]:
        """Return its queue offsets by topic and queue id."""
        return self._table().fetch_group(self._name)

    def hand_over(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write offsets for a broker, unless a reader keeps that table or there is no room.

        A broker that finds them older, or none, reads more, and comes to the same.
        """
        table = self._table()
        with suppress(StoreLocked, StoreFull):
            for (topic, queue_id), offset in offsets.items():
                table.commit(self._name, topic, queue_id, offset)
            try:
                table.close()
            except StoreError as error:
                _LOG.warning("the offsets of %s are not handed over: %s", self._name, error)

    def _table(self) -> ConsumerOffsets:
        return ConsumerOffsets(self._filesystem, self._directory, self._clock)
