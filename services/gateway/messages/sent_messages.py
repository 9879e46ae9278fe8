"""Messages that clients send, checked and made into records as a broker's proxy writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from services.gateway.messages import names
from services.gateway.messages.statuses import CallRefused
from services.gateway.messages.times import milliseconds_of
from services.gateway.messages.topic_types import type_of
from services.gateway.v2 import definition_pb2 as v2
from storage.format import properties
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record import encode_for_batch
from storage.format.record_layout import SYS_FLAG_COMPRESSED

PROPERTY_COUNT_MAX: Final = 128
PROPERTIES_BYTES_MAX: Final = 16 << 10
MESSAGE_GROUP_BYTES_MAX: Final = 63
RECOVERY_SECONDS_MAX: Final = 3600  # until a producer is asked about a transaction
DELAY_DAYS_MAX: Final = 40
DELAY_MS_MAX: Final = DELAY_DAYS_MAX * 86_400_000
MESSAGES_MAX: Final = 4096  # of one request; a client sends 32 at most


class Stamp(NamedTuple):
    """What the gateway adds to each record."""

    cluster_name: str
    body_bytes_max: int


def topic_of_messages(messages: Sequence[v2.Message]) -> str:
    """Return the one topic of a request's messages. Raises CallRefused."""
    if not messages:
        raise CallRefused(v2.MESSAGE_CORRUPTED, "there are no messages in the request")
    if len(messages) > MESSAGES_MAX:
        raise CallRefused(
            v2.MESSAGE_CORRUPTED, f"{len(messages)} messages; the most is {MESSAGES_MAX}"
        )
    topic = names.topic_of(messages[0].topic)
    if any(message.topic.name != topic for message in messages):
        raise CallRefused(v2.MESSAGE_CORRUPTED, "the messages are of more than one topic")
    return topic


def holds_transactions(messages: Sequence[v2.Message]) -> bool:
    """Whether a request's messages are of transactions. Raises CallRefused if only some are."""
    count = sum(message.system_properties.message_type == v2.TRANSACTION for message in messages)
    if 0 < count < len(messages):
        raise CallRefused(v2.MESSAGE_CORRUPTED, "some messages are of transactions, others are not")
    return count > 0


def check_message(message: v2.Message, accepted: Sequence[v2.MessageType], body_max: int) -> None:
    """Raise CallRefused with the code of the first rule that a message breaks."""
    system = message.system_properties
    if not message.body:
        raise CallRefused(v2.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(message.body) > body_max:
        raise CallRefused(
            v2.MESSAGE_BODY_TOO_LARGE,
            f"the body has {len(message.body)} bytes; the most is {body_max}",
        )
    _check_texts(message)
    kind = type_of(message)
    if kind not in accepted:
        raise CallRefused(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the topic takes {' '.join(map(v2.MessageType.Name, accepted))}, not {_type_name(kind)}",
        )
    if kind == v2.TRANSACTION and system.HasField("delivery_timestamp"):
        raise CallRefused(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message of a transaction cannot be delayed"
        )


def _check_texts(message: v2.Message) -> None:
    system = message.system_properties
    _check_properties(message)
    if system.HasField("tag"):
        _check_text(system.tag, v2.ILLEGAL_MESSAGE_TAG, "tag")
        if "|" in system.tag:
            raise CallRefused(v2.ILLEGAL_MESSAGE_TAG, "the tag contains '|', which separates tags")
    for key in system.keys:
        _check_text(key, v2.ILLEGAL_MESSAGE_KEY, "key")
    if system.HasField("message_group"):
        _check_text(system.message_group, v2.ILLEGAL_MESSAGE_GROUP, "message group")
        if len(system.message_group.encode()) > MESSAGE_GROUP_BYTES_MAX:
            raise CallRefused(
                v2.ILLEGAL_MESSAGE_GROUP,
                f"the message group has more than {MESSAGE_GROUP_BYTES_MAX} bytes",
            )
    _check_text(system.message_id, v2.ILLEGAL_MESSAGE_ID, "message id")
    for text in (system.born_host, system.trace_context):
        if names.has_control(text):
            raise CallRefused(v2.BAD_REQUEST, "a host or trace has a control character")


def record_of(
    message: v2.Message, topic: str, queue_id: int, *, born_host: str, now_ms: int, stamp: Stamp
) -> bytes:
    """Return the record of a checked message, as a client puts it in a batch.

    ``born_host`` is the caller's address. Raises CallRefused if the properties are too many.
    """
    system, user = message.system_properties, message.user_properties
    born_ms = now_ms
    if system.HasField("born_timestamp"):
        born_ms = milliseconds_of(system.born_timestamp, otherwise_ms=now_ms)
    pairs = {
        properties.UNIQ_KEY: system.message_id,
        properties.KEYS: properties.KEY_SEPARATOR.join(system.keys),
        properties.TAGS: system.tag,
        **user,
        properties.SHARDING_KEY: system.message_group or user.get(properties.SHARDING_KEY, ""),
        properties.TIMER_DELIVER_MS: _delivery_time(system, now_ms),
        names.BORN_TIMESTAMP: str(born_ms),
        names.BORN_HOST: system.born_host,
        names.TRACE_CONTEXT: system.trace_context,
    }
    if system.HasField("orphaned_transaction_recovery_duration"):
        pairs[properties.CHECK_IMMUNITY] = str(
            max(0, min(system.orphaned_transaction_recovery_duration.seconds, RECOVERY_SECONDS_MAX))
        )
    block = properties.encode_properties(pairs)
    block += stamp_of_topic(topic, system.delivery_attempt, stamp)
    if len(block) > properties.PROPERTIES_SIZE_MAX - PROPERTY_CRC_SIZE:
        raise CallRefused(
            v2.MESSAGE_PROPERTIES_TOO_LARGE, f"the properties have {len(block)} bytes"
        )
    sys_flag = SYS_FLAG_COMPRESSED if system.body_encoding == v2.GZIP else 0
    return encode_for_batch(topic, queue_id, message.body, block, 0, sys_flag, born_ms, born_host)


@lru_cache(maxsize=1024)
def stamp_of_topic(topic: str, delivery_attempt: int, stamp: Stamp) -> bytes:
    """Return the properties that the gateway adds to each message of a topic, as a block."""
    return properties.encode_properties(
        {
            properties.PRODUCER_GROUP: topic,
            names.RECONSUME_TIME: str(delivery_attempt),
            properties.MSG_REGION: "DefaultRegion",
            properties.TRACE_ON: "true",
            properties.CLUSTER: stamp.cluster_name,
        }
    )


def _delivery_time(system: v2.SystemProperties, now_ms: int) -> str:
    """Return the time of delivery that a message asks for, empty without one. Raises CallRefused."""
    if not system.HasField("delivery_timestamp"):
        return ""
    deliver_ms = milliseconds_of(system.delivery_timestamp, otherwise_ms=-1)
    if deliver_ms < 0 or deliver_ms - now_ms > DELAY_MS_MAX:
        raise CallRefused(
            v2.ILLEGAL_DELIVERY_TIME,
            f"a message can be delivered {DELAY_DAYS_MAX} days later at most",
        )
    return str(deliver_ms)


def _check_properties(message: v2.Message) -> None:
    user = message.user_properties
    system = message.system_properties
    size = len(system.tag) + sum(map(len, system.keys))
    size += sum(len(name.encode()) + len(value.encode()) for name, value in user.items())
    if len(user) > PROPERTY_COUNT_MAX or size > PROPERTIES_BYTES_MAX:
        raise CallRefused(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(user)} properties of {size} bytes; the most are {PROPERTY_COUNT_MAX} of"
            f" {PROPERTIES_BYTES_MAX}",
        )
    for name, value in user.items():
        if not name.strip() or names.is_internal(name):
            raise CallRefused(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {name[:100]!r} is reserved"
            )
        if names.has_control(name) or names.has_control(value):
            raise CallRefused(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {name[:100]!r} has a control character",
            )


def _check_text(text: str, code: v2.Code, what: str) -> None:
    if not text.strip():
        raise CallRefused(code, f"the {what} is blank")
    if names.has_control(text):
        raise CallRefused(code, f"the {what} has a control character")


def _type_name(kind: int) -> str:
    return v2.MessageType.Name(kind) if kind in v2.MessageType.values() else str(kind)
