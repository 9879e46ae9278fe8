"""A broker's records of what it handed out: checkpoints and acknowledgements, JSON in its revive topics.

A checkpoint says which messages of a queue a group was handed at one time, and for how long; an
acknowledgement names it by ``key``, and one or more of its messages. Both come to the revive topic through
the timer, so that all acknowledgements that count stand there when the checkpoint's time is over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from storage.format.consume_entry import tag_code
from storage.format.names import RETRY_PREFIX
from storage.format.properties import TAGS, UNIQ_KEY, encode_properties
from storage.format.record import encode_for_batch

REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
ACK_TAG: Final = "ack"
CHECKPOINT_CODE: Final = tag_code("ck")
ACK_CODES: Final = frozenset({tag_code(ACK_TAG), tag_code("bAck")})
MESSAGES_MAX: Final = 1_024  # of a checkpoint; a broker hands out 32 at once
_OFFSET_END: Final = 1 << 62
_MALFORMED: Final = (
    ValueError, KeyError, TypeError, AttributeError, OverflowError,
    RecursionError,  # of JSON that nests deeply
)  # fmt: skip


class CheckpointKey(NamedTuple):
    """What a checkpoint and its acknowledgements have alike."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    broker: str


@dataclass(slots=True)
class Checkpoint:
    """What was handed out at once; ``open_offsets`` are queue offsets that are not acknowledged.

    It stands at ``place`` in queue ``revive_queue`` of ``revive_topic``. The lease ends at ``end_ms``.
    """

    key: CheckpointKey
    end_ms: int
    open_offsets: set[int]
    revive_topic: str
    revive_queue: int
    place: int

    @property
    def retry_topic(self) -> str:
        """The topic in which the group gets its messages again."""
        topic, group = self.key.topic, self.key.group
        return topic if topic.startswith(RETRY_PREFIX) else f"{RETRY_PREFIX}{group}_{topic}"

    def ack_record(self, queue_offset: int, *, now_ms: int, host: str, append_crc: bool) -> bytes:
        """Return the acknowledgement of one message as it goes into a batch."""
        key = self.key
        body = {
            "ao": queue_offset, "bn": key.broker, "c": key.group, "pt": key.pop_ms,
            "q": key.queue_id, "so": key.start_offset, "t": key.topic,
        }  # fmt: skip
        names = (key.topic, key.queue_id, key.start_offset, key.group, key.pop_ms, key.broker)
        properties = {UNIQ_KEY: "@".join(map(str, (*names, ACK_TAG))), TAGS: ACK_TAG}
        return encode_for_batch(
            self.revive_topic, self.revive_queue, json.dumps(body, separators=(",", ":")).encode(),
            encode_properties(properties), 0, 0, now_ms, host, append_crc,
        )  # fmt: skip


def decode_checkpoint(body: bytes, topic: str, queue_id: int, place: int) -> Checkpoint | None:
    """Return the checkpoint that a record of a revive topic holds; None if it is not one."""
    try:
        document = json.loads(body)
        key = _key(document)
        count = int(document.get("n", 0))
        if not 0 <= count <= MESSAGES_MAX or len(document.get("d") or ()) > MESSAGES_MAX:
            return None
        distances = [int(each) for each in document.get("d") or range(count)]
        done_bits = int(document.get("bm", 0))
        end_ms = key.pop_ms + int(document["it"])
    except _MALFORMED:
        return None
    if not 0 <= key.start_offset < _OFFSET_END or not all(0 <= d < _OFFSET_END for d in distances):
        return None
    offsets = {
        key.start_offset + distance
        for number, distance in enumerate(distances)
        if not done_bits >> number & 1
    }
    return Checkpoint(key, end_ms, offsets, topic, queue_id, place)


def decode_ack(body: bytes) -> tuple[CheckpointKey, list[int]] | None:
    """Return which checkpoint an acknowledgement is of, and its queue offsets; None if it is not one."""
    try:
        document = json.loads(body)
        offsets = document.get("aol") or [document["ao"]]
        return _key(document), [int(each) for each in offsets]
    except _MALFORMED:
        return None


def _key(document: dict[str, Any]) -> CheckpointKey:
    return CheckpointKey(
        str(document["t"]), str(document["c"]), int(document["q"]), int(document["so"]),
        int(document["pt"]), str(document.get("bn", "")),
    )  # fmt: skip
