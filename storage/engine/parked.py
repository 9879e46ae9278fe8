"""What the callers of an append are answered of messages that were parked, to be delivered later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.names import TIMER_TOPIC
from storage.format.properties import TIMER_OUT_MS, decode_properties
from storage.kernels.columns import HAS_DELAY, HAS_TIMER, PROPERTIES_LENGTH, PROPERTIES_POSITION

if TYPE_CHECKING:
    from storage.log.batches import Prepared
    from storage.message import PutResult

ASKS_FOR_DELAY: Final = HAS_DELAY | HAS_TIMER
PARKING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
NOT_PARKED: Final = -1


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
