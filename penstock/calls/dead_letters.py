"""What a dead letter is made of again: the message that is sent, and where to."""

from __future__ import annotations

from penstock.errors import InvalidArgument
from penstock.record import Record
from penstock.values import Message
from storage.format.names import DLQ_PREFIX, RETRY_PREFIX
from storage.format.properties import RETRY_TOPIC, is_reserved


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return f"{DLQ_PREFIX}{group}"


def is_dead_letter_topic(topic: str) -> bool:
    """Whether a topic has a group's dead letters."""
    return topic.startswith(DLQ_PREFIX)


def group_of(topic: str) -> str:
    """Return the group whose dead letters a topic has."""
    return topic.removeprefix(DLQ_PREFIX)


def origin_topic(record: Record) -> str:
    """Return the topic that a message was sent to first; of a dead letter or a retry it is another than its own.

    Raises InvalidArgument where a dead letter does not say it.
    """
    group = group_of(record.topic)
    origin = record.properties.get(RETRY_TOPIC, "")
    if not is_dead_letter_topic(record.topic):
        return origin or record.topic
    if not origin:
        raise InvalidArgument(
            f"the dead letter at offset {record.queue_offset} does not say where it comes from:"
            " give a topic",
            field="topic",
        )
    for between in "_+":  # a broker has two ways to name it
        origin = origin.removeprefix(f"{RETRY_PREFIX}{group}{between}")
    return origin


def copy_of(record: Record, topic: str) -> Message:
    """Return a record as a new message of a topic, with its keys, tag, properties and unique key."""
    own = {name: value for name, value in record.properties.items() if not is_reserved(name)}
    return Message(
        topic=topic,
        body=record.stored_body,
        keys=record.keys,
        tag=record.tag,
        properties=own,
        unique_key=record.unique_key,
        flag=record.flag,
        sys_flag=record.compression_flags,
    )
