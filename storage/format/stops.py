"""Why a walk over records stops: what the bytes at a position are instead of an intact record."""

from __future__ import annotations

from enum import IntEnum


class Stop(IntEnum):
    """Why a scan went no further; the text says it of the record it stopped at."""

    text: str

    def __new__(cls, value: int, text: str) -> Stop:
        """Keep the number as the value and the text beside it."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    END = 0, "the end of the range"
    ROWS_FULL = 1, "the row table is full"
    BLANK = 2, "a blank record: the file ends here"
    ZERO = 3, "eight zero bytes: never written"
    MAGIC = 4, "the magic number is not a record's"
    SIZE = 5, "the size is too small for a record"
    LENGTHS = 6, "the lengths inside do not add up to the size"
    BODY_CRC = 7, "the body does not match its CRC"
    PROPERTY_CRC = 8, "the record does not match its property CRC"
    COMMIT_OFFSET = 9, "the record belongs to another commit offset"
    TOPIC = 10, "the topic is empty or has a character that no topic has"
    TRUNCATED = 11, "the range ends inside the record"
    VERSION = 12, "the record version does not fit the topic's length"
    QUEUE = 13, "the queue id is negative"
    SYS_FLAG = 14, "a transaction, batch or unknown bit is set in the system flag"
    DELAY = 15, "a delay or a time of delivery is not a number of at most 15 digits"
    RESERVED_PROPERTY = 16, "a property has a name that is reserved for the store"
    PROPERTIES = 17, "the properties are not well-formed name-value pairs in UTF-8"
    TAG = 18, "the tag contains '|'"
    HOST = 19, "the port of a host is above 65535"
