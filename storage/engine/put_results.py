"""What is answered for messages that are put, and the record of one that is put alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.format.message_id import encode_message_id
from storage.format.record import complete_record
from storage.kernels.columns import COMMIT_OFFSET, QUEUE_ID, QUEUE_OFFSET
from storage.message import BatchResult, Message, PutResult, QueueRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from storage.files.mapped_file import MappedFile
    from storage.kernels.columns import Rows
    from storage.log.batches import Prepared


def put_results(
    messages: Sequence[Message], encoded: Sequence[tuple[bytes, str, int]], placed_rows: Rows, *,
    store_host: bytes, store_timestamp_ms: int,
) -> list[PutResult]:  # fmt: skip
    """Return what is answered for appended messages; ``encoded`` is what their encoder made of them."""
    placed = placed_rows[:, (QUEUE_OFFSET, COMMIT_OFFSET)].tolist()
    return [
        PutResult(
            topic=message.topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_offset=commit_offset,
            message_id=encode_message_id(store_host, commit_offset),
            unique_key=unique_key,
            store_timestamp_ms=store_timestamp_ms,
        )
        for message, (_, unique_key, queue_id), (queue_offset, commit_offset) in zip(
            messages, encoded, placed, strict=True
        )
    ]


def joined_results(
    batch: Prepared, first_rows: npt.NDArray[np.int64], store_timestamp_ms: int
) -> list[BatchResult]:
    """Return what is answered for the parts of a batch that was appended, each of one queue.

    Its placed rows are filled; ``first_rows`` are those of the parts' first records.
    """
    placed = batch.placed_rows[first_rows]
    begins = placed[:, COMMIT_OFFSET].tolist()
    ends = [*begins[1:], begins[0] + batch.placed_size]
    return [
        BatchResult(
            begin, end, count, store_timestamp_ms,
            (QueueRange(batch.queues[group][0].decode(), queue_id, queue_offset, count),),
        )
        for begin, end, count, group, queue_id, queue_offset in zip(
            begins, ends,
            np.diff(first_rows, append=batch.record_count).tolist(),
            batch.group_of[first_rows].tolist(), placed[:, QUEUE_ID].tolist(),
            placed[:, QUEUE_OFFSET].tolist(), strict=True,
        )
    ]  # fmt: skip


class OneRecord:
    """The encoded record of one message, to be stored where its place is found."""

    def __init__(
        self, topic: str, encoded: bytes, unique_key: str, *, store_host: bytes, property_crc: bool
    ) -> None:
        self._topic = topic
        self._record = bytearray(encoded)
        self._unique_key = unique_key
        self._store_host = store_host
        self._property_crc = property_crc

    def write(
        self, file: MappedFile, queue_id: int, queue_offset: int, store_timestamp_ms: int
    ) -> PutResult:
        """Store it at the file's appended position; return what is answered."""
        record, host = self._record, self._store_host
        position = file.appended_position
        commit_offset = file.start_offset + position
        complete_record(
            record, queue_offset=queue_offset, commit_offset=commit_offset,
            store_timestamp_ms=store_timestamp_ms, store_host=host, property_crc=self._property_crc,
        )  # fmt: skip
        file.write_array.data[position : position + len(record)] = record
        return PutResult(
            self._topic, queue_id, queue_offset, commit_offset,
            encode_message_id(host, commit_offset), self._unique_key, store_timestamp_ms,
        )  # fmt: skip
