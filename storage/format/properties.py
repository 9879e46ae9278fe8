"""Property blocks: name, 0x01, value, 0x02, over and over.

A broker terminates every pair; a reader tolerates a missing last 0x02. A segment between two 0x02
counts if its first 0x01 is not its first byte and a byte follows it, so an empty value is as good
as none. Of equal names the last one counts. Order means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import iter_unpack
from typing import Final

NAME_END: Final = 0x01
PROPERTY_END: Final = 0x02
PROPERTIES_SIZE_MAX: Final = 32_767  # the length field is a signed i16

KEYS: Final = "KEYS"
KEY_SEPARATOR: Final = " "
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
DEAD_LETTER_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
SHARDING_KEY: Final = "__SHARDINGKEY"
PRODUCER_GROUP: Final = "PGROUP"
HALF_MESSAGE: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_HALF_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
PRODUCER_SEQUENCE: Final = "__PSEQ"
CRC32: Final = "__CRC32#"
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."

STORE_ONLY: Final = frozenset(
    {
        FIRST_POP_TIME, CRC32, DEAD_LETTER_ORIGIN_MESSAGE_ID, DEAD_LETTER_ORIGIN_TOPIC, DELAY, "INNER_BASE",
        INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, "INNER_NUM", "MAX_OFFSET", "MIN_OFFSET",
        ORIGIN_MESSAGE_ID, "POP_CK", "POP_CK_OFFSET", REAL_QID, REAL_TOPIC,
        RETRY_TOPIC, "TIMER_DELAY_LEVEL", TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS,
        TIMER_DEL_UNIQKEY, TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS, TIMER_OUT_MS,
        TIMER_ROLL_TIMES, CHECK_TIMES, HALF_MESSAGE, FIRST_HALF_OFFSET, TRANSACTION_ID,
    }
)  # fmt: skip
"""Names that steer the store or that only a store writes: no user's property, in records that clients encode only DELAYING."""

DELAYING: Final = frozenset({DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS})
"""Names by which an encoded record asks for a delay; their values are digits."""

RESERVED: Final = STORE_ONLY | frozenset(
    {
        "ARRIVE_TIME", "BORN_TIMESTAMP", "BUYER_ID", CHECK_IMMUNITY, CLUSTER,
        "CONSUME_START_TIME", "CORRECTION_FLAG", "CORRELATION_ID", "DUP_INFO", "EXTEND_UNIQ_INFO",
        "INSTANCE_ID", KEYS, "MAX_RECONSUME_TIMES", "MQ2_FLAG", MSG_REGION, "MSG_TYPE",
        PRODUCER_GROUP, PRODUCER_SEQUENCE, "PROPERTY_FORWARD_QUEUE_ID", "PUSH_REPLY_TIME",
        "RECONSUME_TIME", "REDIRECT", "REPLY_TO_CLIENT", TAGS, "TRACE_CONTEXT", TRACE_ON, "TRANSFER_FLAG", "TTL", UNIQ_KEY, WAIT,
        "__BORNHOST",
    }
)  # fmt: skip
"""Names with a meaning of their own, which a user's properties must not take."""


def is_reserved(name: str) -> bool:
    """Whether a name is the store's or a broker's, which no user's property may take."""
    return name in RESERVED or name.startswith(TRANSIENT_PREFIX) or name.endswith(CRC32)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode in the mapping's order, every pair terminated.

    Empty values are left out, as no reader would see them. ValueError for an empty name and for
    text that would end a pair early; the size is not limited here (see ``limits``).
    """
    block = []
    for name, value in properties.items():
        if not value:
            continue
        if not name or "\x01" in name or "\x02" in name:
            raise ValueError(f"a property cannot be named {name!r}")
        if "\x02" in value:
            raise ValueError(f"property {name}: a value cannot contain the character U+0002")
        block.append(f"{name}\x01{value}\x02")
    return "".join(block).encode()


def decode_properties(block: bytes | bytearray | memoryview) -> dict[str, str]:
    """Decode a block, of a broken one what a broker would; bytes that are no UTF-8 become U+FFFD."""
    properties = {}
    for segment in bytes(block).decode(errors="replace").split("\x02"):
        name, separator, value = segment.partition("\x01")
        if name and separator and value:
            properties[name] = value
    return properties


def split_keys(keys: str) -> tuple[str, ...]:
    """Split the value of KEYS into its tokens; repeated ones stay, empty ones go."""
    return tuple(filter(None, keys.split(KEY_SEPARATOR)))


def java_hash(text: str) -> int:
    """Hash ``text`` as Java does, over its UTF-16 units; a signed 32-bit integer.

    Tags and index keys are stored as it.
    """
    hashed = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    return hashed - (1 << 32) if hashed & 0x8000_0000 else hashed
