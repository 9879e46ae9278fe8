"""Recall handles: what a producer gives back so that a delayed message is not delivered. A broker's.

URL-safe base64 of ``v1 TOPIC BROKER RECALL_MS MESSAGE_ID``, separated by one space. RECALL_MS is a
millisecond after the second that a broker's timer knows of the message; MESSAGE_ID is its unique key.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from storage.errors import InvalidMessage

VERSION = "v1"
FIELD_COUNT = 5
_NUMBER_DIGITS_MAX = 15


class RecallHandle(NamedTuple):
    """What a handle says."""

    topic: str
    broker: str
    recall_ms: int
    unique_key: str

    def encode(self) -> str:
        """Return the handle as text."""
        text = f"{VERSION} {self.topic} {self.broker} {self.recall_ms} {self.unique_key}"
        return urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Read a handle. Raises InvalidMessage for what is not one, byte for byte as it was given out."""
    try:
        decoded = urlsafe_b64decode(text.encode())
        # Decoding passes over foreign characters, and over bits that the end leaves.
        is_as_encoded = urlsafe_b64encode(decoded) == text.encode()
        fields = decoded.decode().split(" ") if is_as_encoded else []
    except ValueError:
        fields = []
    if len(fields) == FIELD_COUNT and fields[0] == VERSION and all(fields):
        _, topic, broker, recall_ms, unique_key = fields
        if recall_ms.isascii() and recall_ms.isdigit() and len(recall_ms) <= _NUMBER_DIGITS_MAX:
            return RecallHandle(topic, broker, int(recall_ms), unique_key)
    raise InvalidMessage("recall_handle", "is not a whole recall handle: give it as it was printed")
