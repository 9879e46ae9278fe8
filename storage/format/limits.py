"""Limits of a message, one function a field; each raises InvalidMessage naming the field.

field        limit
topic        127 bytes of letters, digits and % | - _ ; 255 for retry and dead-letter topics;
             not one to which a broker alone writes
body         the store's ``body_size_max``; may be empty
keys         none empty, none with a space (which separates them), 32,000 bytes together
tag          no ``|``, which separates tags in expressions
properties   no empty name or value, no reserved name, 32,767 bytes encoded with keys and tag
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from storage.errors import InvalidMessage
from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.names import (
    GIVEN_UP_TOPIC,
    HALF_REMOVAL_TOPIC,
    HALF_TOPIC,
    TIMER_TOPIC,
    topic_name_problem,
)
from storage.format.properties import (
    KEY_SEPARATOR,
    KEYS,
    PROPERTIES_SIZE_MAX,
    TAGS,
    UNIQ_KEY,
    WAIT,
    encode_properties,
    is_reserved,
)
from storage.format.property_crc import PROPERTY_CRC_SIZE

KEYS_SIZE_MAX: Final = 32_000
NOT_SENT_TO: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        HALF_REMOVAL_TOPIC,
        GIVEN_UP_TOPIC,
        TIMER_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Topics of a broker's own, which acts on what stands there and takes no message for them."""
_SAFE_LENGTH: Final = 8_000  # characters that stay below every limit, at up to 4 bytes each
_SEPARATORS: Final = ("\x01", "\x02")
_WAIT_TRUE: Final = f"{WAIT}\x01true\x02"


def check_topic(topic: str) -> None:
    """Refuse a topic that RocketMQ forbids."""
    if problem := topic_name_problem(topic):
        raise InvalidMessage("topic", problem)


def check_body(body_size: int, body_size_max: int) -> None:
    """Refuse a body of more than ``body_size_max`` bytes."""
    if body_size > body_size_max:
        raise InvalidMessage(
            "body", f"{body_size} bytes; the most is {body_size_max}. Compress it or split it"
        )


def check_keys(keys: Sequence[str]) -> None:
    """Refuse keys that could not be looked up, and too many of them."""
    for key in keys:
        if not key:
            raise InvalidMessage("keys", "a key is empty; leave it out")
        if KEY_SEPARATOR in key:
            raise InvalidMessage("keys", f"{key[:100]!r} contains a space, which separates keys")
        _check_text("keys", key)
    size = len(KEY_SEPARATOR.join(keys).encode())
    if size > KEYS_SIZE_MAX:
        raise InvalidMessage("keys", f"{size} bytes together; the most is {KEYS_SIZE_MAX}")


def check_tag(tag: str) -> None:
    """Refuse a tag that no expression could name."""
    if "|" in tag:
        raise InvalidMessage("tag", f"{tag[:100]!r} contains '|', which separates tags")
    if tag != tag.strip():
        raise InvalidMessage("tag", f"{tag[:100]!r} begins or ends with white space")
    _check_text("tag", tag)


def check_unique_key(unique_key: str) -> None:
    """Refuse a unique key that could not be looked up."""
    if KEY_SEPARATOR in unique_key:
        raise InvalidMessage("unique_key", f"{unique_key[:100]!r} contains a space")
    _check_text("unique_key", unique_key)


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse user properties that mean something to the store or that would not read back."""
    for name, value in properties.items():
        if not name:
            raise InvalidMessage("properties", "a name is empty")
        if is_reserved(name):
            raise InvalidMessage("properties", f"the name {name!r} is reserved; choose another")
        if not value:
            raise InvalidMessage("properties", f"{name!r} has an empty value; leave it out")
        _check_text("properties", name)
        _check_text("properties", value)


def checked_properties(
    keys: Sequence[str],
    tag: str,
    properties: Mapping[str, str],
    unique_key: str,
    *,
    wait: bool = True,
    property_crc: bool = True,
) -> bytes:
    """Check a message's keys, tag and properties, and encode them as one block.

    With ``wait`` WAIT is among them. The block has room for the trailer that ``property_crc`` asks for; it is not
    in the block. A message that could break a rule is looked at rule by rule; that none could is seen by
    counting separators once.
    """
    joined = KEY_SEPARATOR.join(keys)
    block = f"{UNIQ_KEY}\x01{unique_key}\x02" if unique_key else ""
    if joined:
        block += f"{KEYS}\x01{joined}\x02"
    if wait:
        block += _WAIT_TRUE
    if tag:
        block += f"{TAGS}\x01{tag}\x02"
    pair_count = bool(unique_key) + bool(joined) + wait + bool(tag)
    if (
        not properties
        and len(block) <= _SAFE_LENGTH
        and block.count("\x01") == block.count("\x02") == pair_count
        and block.count(KEY_SEPARATOR) == (len(keys) - 1 if keys else 0)
        and "" not in keys
        and (not tag or ("|" not in tag and not (tag[0].isspace() or tag[-1].isspace())))
    ):
        try:
            return block.encode()
        except UnicodeEncodeError:
            pass  # the rules name the field
    check_keys(keys)
    check_tag(tag)
    check_unique_key(unique_key)
    check_properties(properties)
    named = {UNIQ_KEY: unique_key, KEYS: joined, WAIT: "true" if wait else "", TAGS: tag}
    encoded = encode_properties(named | dict(properties))
    size_max = PROPERTIES_SIZE_MAX - PROPERTY_CRC_SIZE * property_crc
    if len(encoded) > size_max:
        raise InvalidMessage(
            "properties", f"{len(encoded)} bytes with keys and tag; the most is {size_max}"
        )
    return encoded


def _check_text(field: str, text: str) -> None:
    if any(separator in text for separator in _SEPARATORS):
        raise InvalidMessage(field, f"{text[:100]!r} contains U+0001 or U+0002, which end it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidMessage(field, f"{text[:100]!r} is not Unicode text") from None
