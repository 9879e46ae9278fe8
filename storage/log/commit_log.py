"""The commit log, append side: whole batches placed into the newest file, rolls, commit and flush.

Invariants:
1. ``append`` runs under the writer's lock; nobody else stores to the files.
2. ``flushed_offset <= committed_offset <= appended_offset``, and each only grows.
3. Bytes of a file below its appended position never change again.
4. At least 8 bytes stay free in a file, so that the blank record which ends it always fits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidMessage
from storage.format.record import encode_blank
from storage.format.record_layout import BLANK_SIZE
from storage.kernels.batch import place_records
from storage.message import ProducerSequence

if TYPE_CHECKING:
    from storage.files.mapped_file import MappedFile
    from storage.files.mapped_file_queue import MappedFileQueue
    from storage.log.batches import Prepared

NO_PRODUCER: Final = ProducerSequence(0, 0)
NextFile = Callable[[int], "MappedFile"]


class CommitLog:
    """Appends to the files of ``files`` from ``end_offset`` on."""

    def __init__(
        self,
        files: MappedFileQueue,
        *,
        end_offset: int,
        store_host: bytes,
        append_property_crc: bool,
        next_file: NextFile,
    ) -> None:
        """Take the files over after recovery: everything before ``end_offset`` is durable.

        ``next_file(start_offset)`` hands out the file to go on in, taken into ``files``; it raises
        StoreBusy or StoreFull rather than wait.
        """
        self.files = files
        self.appended_offset = end_offset
        self.committed_offset = end_offset
        self.flushed_offset = end_offset
        self._store_host = np.frombuffer(store_host, np.uint8)
        self._append_property_crc = append_property_crc
        self._next_file = next_file
        self._guard = threading.Lock()  # of the deque
        self._unflushed: deque[MappedFile] = deque()
        self._following: MappedFile | None = None  # taken for a roll that did not come about
        self._tail = files.find(end_offset)
        if self._tail is not None:
            self._tail.set_positions(end_offset - self._tail.start_offset)
            self._unflushed.append(self._tail)

    @property
    def min_offset(self) -> int:
        """Start of the oldest file."""
        return self.files.first_offset

    @property
    def tail(self) -> MappedFile | None:
        """The file appended to; None before the first append to an empty log."""
        return self._tail

    def check_size(self, size: int) -> None:
        """Raise InvalidMessage unless ``size`` bytes fit in one file, as all of a batch must."""
        limit = self.files.file_size - BLANK_SIZE
        if size > limit:
            raise InvalidMessage(
                "records", f"{size} bytes when stored; all must fit in one file of {limit} bytes"
            )

    def append(
        self,
        batch: Prepared,
        next_queue_offsets: npt.NDArray[np.int64],
        placed_rows: npt.NDArray[np.int64],
        store_timestamp_ms: int,
        producer: ProducerSequence = NO_PRODUCER,
    ) -> int:
        """Place the batch and return its commit offset; ``next_queue_offsets`` are moved on.

        ``placed_rows`` are filled with the rows of the placed records, unless there are none. Of a
        ``producer`` the first record says whose they are, and the placed size has room for it. Raises
        StoreBusy or StoreFull, and then nothing was stored.
        """
        file = self.file_for(batch.placed_size)
        position = file.appended_position
        commit_offset = file.start_offset + position
        end = place_records(
            file.write_array, position, batch.data, batch.rows, batch.record_count, batch.group_of,
            next_queue_offsets, commit_offset, store_timestamp_ms, self._store_host,
            self._append_property_crc, placed_rows, producer.producer_id, producer.sequence,
        )  # fmt: skip
        assert end == position + batch.placed_size
        self.mark_appended(file, end)
        return commit_offset

    def mark_appended(self, file: MappedFile, end: int) -> int:
        """Publish what was stored to the file that ``file_for`` gave, up to position ``end``.

        Returns the appended offset.
        """
        is_committed = file.mark_appended(end)
        appended_offset = self.appended_offset = file.start_offset + end
        if is_committed:
            self.committed_offset = appended_offset
        return appended_offset

    def file_for(self, size: int) -> MappedFile:
        """Return the file that takes ``size`` bytes at its appended position; rolls if need be.

        Raises StoreBusy or StoreFull, and then nothing was stored.
        """
        file = self._tail
        if file is not None and file.appended_position + size + BLANK_SIZE <= file.size:
            file.reserve(file.appended_position + size)
            return file
        following = self._following
        if following is None:
            start_offset = self.appended_offset if file is None else file.end_offset
            following = self._following = self._next_file(start_offset)
        following.reserve(size)
        if file is not None and file.appended_position < file.size:
            # The blank comes after the next file is at hand: were it not to be had, the log would
            # stay as it is and a smaller batch might still fit.
            file.reserve(file.size)
            position = file.appended_position
            blank = np.frombuffer(encode_blank(file.size - position), np.uint8)
            file.write_array[position : position + BLANK_SIZE] = blank
            file.mark_appended(file.size)
        with self._guard:
            self._unflushed.append(following)
        self._tail, self._following = following, None
        self.appended_offset = following.start_offset
        return following

    def commit(self) -> int:
        """Bring what was appended to the page cache; return the committed offset.

        For the commit thread. On StoreFull or OSError it may be called again.
        """
        for file in self._pending():
            if file.commit() < file.size:
                self.committed_offset = file.start_offset + file.committed_position
                break
            self.committed_offset = file.end_offset
        return self.committed_offset

    def flush(self) -> int:
        """Make what was committed durable; return the flushed offset.

        For the flush thread. After an OSError never call it again.
        """
        for file in self._pending():
            position = file.flush()
            self.flushed_offset = file.start_offset + position
            if position < file.size:
                break
            with self._guard:
                if len(self._unflushed) > 1:
                    self._unflushed.popleft()
        return self.flushed_offset

    def _pending(self) -> list[MappedFile]:
        with self._guard:
            return list(self._unflushed)
