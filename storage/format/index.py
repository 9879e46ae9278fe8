"""One index file: a hash table from message keys to places in the commit log, fixed in size.

    offset         size       field
    0              40         header
    40             4 slots    slots      i32 each: number of the newest entry of the slot, 0 if none
    40 + 4 slots   20 entries entries    number 0 is never written

Header::

    offset  size  type  field
    0       8     i64   begin_timestamp_ms   store time of the first key's record
    8       8     i64   end_timestamp_ms     of the last key's
    16      8     i64   begin_commit_offset  place of the first key's record
    24      8     i64   end_commit_offset    of the last key's
    32      4     i32   used_slot_count
    36      4     i32   next_entry           number of the next entry to write; 0 reads as 1
    40

Entry::

    offset  size  type  field
    0       4     i32   key_hash             not negative
    4       8     i64   commit_offset
    12      4     i32   time_delta_s         seconds since the header's begin, as it was then
    16      4     i32   previous_entry       of the same slot; 0 ends the chain
    20

Integers are big-endian. Keys are hashed as ``topic#key``; they are not in the file. Entry 1 of
every file but the first holds its time against the end of the file before, a broker's habit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from storage.format.properties import java_hash

HEADER: Final = Struct(
    ">q"  # begin_timestamp_ms
    "q"  # end_timestamp_ms
    "q"  # begin_commit_offset
    "q"  # end_commit_offset
    "i"  # used_slot_count
    "i"  # next_entry
)
ENTRY: Final = Struct(
    ">i"  # key_hash
    "q"  # commit_offset
    "i"  # time_delta_s
    "i"  # previous_entry
)
BEGIN_TIMESTAMP_POSITION: Final = 0
END_TIMESTAMP_POSITION: Final = 8
BEGIN_COMMIT_OFFSET_POSITION: Final = 16
END_COMMIT_OFFSET_POSITION: Final = 24
USED_SLOT_COUNT_POSITION: Final = 32
NEXT_ENTRY_POSITION: Final = 36
COMMIT_OFFSET_IN_ENTRY: Final = 4
TIME_DELTA_IN_ENTRY: Final = 12
PREVIOUS_IN_ENTRY: Final = 16
HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
KEY_SEPARATOR: Final = "#"
TIME_DELTA_MAX_S: Final = 0x7FFF_FFFF

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header as values."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_commit_offset: int = 0
    end_commit_offset: int = 0
    used_slot_count: int = 0
    next_entry: int = 1

    def encode(self) -> bytes:
        """Return the 40 bytes."""
        return HEADER.pack(
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_commit_offset,
            self.end_commit_offset,
            self.used_slot_count,
            self.next_entry,
        )

    @classmethod
    def decode(cls, buffer: Buffer) -> IndexHeader:
        """Read the first 40 bytes; a next entry that is not positive reads as 1."""
        if len(buffer) < HEADER_SIZE:
            raise ValueError(f"an index header takes {HEADER_SIZE} bytes, not {len(buffer)}")
        header = cls(*HEADER.unpack_from(buffer))
        return header if header.next_entry > 0 else replace(header, next_entry=1)


def file_size(slot_count: int, entry_count: int) -> int:
    """Return the bytes of a file; ``entry_count`` includes the entry number 0 that is not used."""
    return HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * entry_count


def entry_position(slot_count: int, entry: int) -> int:
    """Return where entry number ``entry`` stands in the file."""
    return HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * entry


def key_hash(topic: str, key: str) -> int:
    """Return the hash a key is stored under: Java's without its sign, and 0 for -2**31."""
    hashed = abs(java_hash(f"{topic}{KEY_SEPARATOR}{key}"))
    return hashed if hashed < 1 << 31 else 0
