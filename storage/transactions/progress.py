"""How far transactions are, as a start needs it: ``config/transactions.json`` and a broker's own entry.

``half_offset`` is a queue offset of the half queue before which all halves are ended;
``removal_offset`` one of the queue of op records, before which none names a half at or after
``half_offset``. ``copies_offset`` is a commit offset before which no half that is pending has a copy. All
only save reading: without them a start reads all of both queues, and looks for copies since the oldest
pending half. A broker keeps the first two as offsets of its group CID_RMQ_SYS_TRANS in
``consumerOffset.json``. They count where a broker ran since our last writer: whoever else wrote there
knows nothing of halves.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.errors import StoreError, StoreFull, StoreLocked
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.own_document import damaged_files, load_document, save_document

if TYPE_CHECKING:
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.filesystem import FileSystem, ReadFileSystem

TRANSACTIONS_FILE: Final = "transactions.json"
_LOG: Final = logging.getLogger(__name__)


class TransactionProgress(NamedTuple):
    """Offsets up to which halves, op records and copies need not be read again."""

    half_offset: int
    removal_offset: int
    copies_offset: int


NO_PROGRESS: Final = TransactionProgress(0, 0, 0)


def _parsed(document: dict[str, Any]) -> TransactionProgress:
    return TransactionProgress(
        int(document["half_offset"]),
        int(document["removal_offset"]),
        int(document.get("copies_offset", 0)),  # older writers have none
    )


def damaged_progress_files(filesystem: ReadFileSystem, directory: Path) -> dict[str, str]:
    """Return what is wrong with our files of progress in ``config/``, by name."""
    return damaged_files(filesystem, directory / TRANSACTIONS_FILE, _parsed)


class ProgressFiles:
    """Reads and writes the progress of one store."""

    def __init__(self, filesystem: FileSystem, config_directory: Path, clock: Clock) -> None:
        self._filesystem = filesystem
        self._directory = config_directory
        self._clock = clock
        self._path = config_directory / TRANSACTIONS_FILE

    def load(self, *, broker_ran: bool) -> TransactionProgress:
        """Return our progress, or that of a broker that ran since, if it is further on: each holds on its own.

        Whoever else ran may have left copies without op records.
        """
        own = NO_PROGRESS
        try:
            own = load_document(self._filesystem, self._path, _parsed) or NO_PROGRESS
        except (OSError, ValueError) as error:
            _LOG.warning(
                "config/%s: %s; the half queue is read from its start", TRANSACTIONS_FILE, error
            )
        if not broker_ran:
            return own
        topics = ConsumerOffsets(self._filesystem, self._directory, self._clock).fetch_group(
            TRANSACTION_GROUP
        )
        found = TransactionProgress(
            topics.get(HALF_TOPIC, {}).get(0, 0),
            topics.get(HALF_REMOVAL_TOPIC, {}).get(0, 0),
            0,
        )
        return max(own, found)._replace(copies_offset=0)

    def save(self, progress: TransactionProgress) -> None:
        """Keep the progress; durable on return. Raises StoreFull with nothing changed, OSError."""
        save_document(self._filesystem, self._path, progress._asdict())

    def hand_over(self, progress: TransactionProgress) -> None:
        """Write the progress where a broker reads it, unless a reader keeps that table or there is no room.

        A broker that finds it older, or none, reads more of both queues, and comes to the same.
        """
        if not progress.half_offset and not progress.removal_offset:
            return
        offsets = ConsumerOffsets(self._filesystem, self._directory, self._clock)
        with suppress(StoreLocked, StoreFull):
            offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, progress.half_offset)
            offsets.commit(TRANSACTION_GROUP, HALF_REMOVAL_TOPIC, 0, progress.removal_offset)
            try:
                offsets.close()
            except StoreError as error:
                _LOG.warning("the progress of transactions is not handed over: %s", error)
