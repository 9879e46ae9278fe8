"""What is answered for messages that are put."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.format.message_id import encode_message_id
from storage.kernels.columns import COMMIT_OFFSET, QUEUE_ID, QUEUE_OFFSET
from storage.message import BatchResult, Message, PutResult, QueueRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

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
