"""What is answered for messages that are put, parked ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.message_id import encode_message_id
from storage.format.names import TIMER_TOPIC
from storage.format.properties import TIMER_OUT_MS, decode_properties
from storage.kernels.columns import (
    COMMIT_OFFSET,
    HAS_DELAY,
    HAS_TIMER,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
)
from storage.message import BatchResult, Message, PutResult, QueueRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from storage.kernels.columns import Rows
    from storage.log.batches import Prepared


ASKS_FOR_DELAY: Final = HAS_DELAY | HAS_TIMER
PARKING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
NOT_PARKED: Final = -1


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


def recall_times_ms(prepared: Prepared) -> list[int]:
    """Return for each record by which time it can be recalled, 0 for a delay level, NOT_PARKED for others.

    It is a broker's: a millisecond after the second that its timer knows.
    """
    times = []
    groups = prepared.group_of[: prepared.record_count].tolist()
    for row, group in zip(prepared.rows[: prepared.record_count], groups, strict=True):
        topic = prepared.queues[group][0].decode()
        if topic not in PARKING_TOPICS:
            times.append(NOT_PARKED)
        elif topic == SCHEDULE_TOPIC:
            times.append(0)
        else:
            begin = int(row[PROPERTIES_POSITION])
            block = prepared.data[begin : begin + int(row[PROPERTIES_LENGTH])].tobytes()
            times.append(int(decode_properties(block)[TIMER_OUT_MS]) + 1)
    return times


def as_parked(result: PutResult, recall_ms: int) -> PutResult:
    """Return the result of a message: of one that was parked, without the place that it does not have yet."""
    if recall_ms == NOT_PARKED:
        return result
    return result._replace(queue_offset=-1, recall_ms=recall_ms)
