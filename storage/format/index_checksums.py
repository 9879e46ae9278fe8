"""The checksums of one index file, kept beside it in ``index-checksums/`` under the same name.

Little-endian::

    offset  size       field
    0       40         identity
    64      8          put_count  i64, odd while a put is under way: sums may not fit the bytes then
    512     4 x 72     records    what the index file was when it was last synced, written in turn
    4096    8 a block  sums       i64 each: blocks of 64 slots, then blocks of 16 entries

Identity::

    offset  size  type  field
    0       8     i64   magic
    8       4     i32   version
    12      4     u32   crc           CRC-32 of these 40 bytes, this field as zero
    16      8     i64   number        the index file's name
    24      8     i64   slot_count
    32      8     i64   entry_count
    40

Record::

    offset  size  type  field
    0       8     i64   sequence      the highest counts
    8       4     i32   flags         1: sealed, nothing is put to the file any more;
                                      2: proven, made from the log or compared with it
    12      4     u32   crc           CRC-32 of these 72 bytes, this field as zero
    16      8     i64   checked_ms    when all blocks were last found to be right
    24      8     i64   tail_sum      of the entries in the last, unfinished block
    32      40    40s   header        of the index file
    72

The sum of a block is ``sum(word[i] * MULTIPLIERS[i]) mod 2**62`` over its big-endian 32-bit words: no
change of a single word keeps it, and it follows a put without a look at the rest of the block. A
block of zeros has sum 0. Slots are counted from slot 0, entries from entry 0, which is never written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct
from typing import Final
from zlib import crc32

from storage.format.index import ENTRY_SIZE, SLOT_SIZE, IndexHeader

IDENTITY: Final = Struct("<qiIqqq")
RECORD: Final = Struct("<qiIqq40s")
MAGIC: Final = 0x314D55535844494B
VERSION: Final = 1
PUT_COUNT_POSITION: Final = 64
RECORDS_POSITION: Final = 512
RECORD_COUNT: Final = 4
SUMS_POSITION: Final = 4096
SUM_SIZE: Final = 8
SLOTS_PER_BLOCK: Final = 64
ENTRIES_PER_BLOCK: Final = 16
WORD_SIZE: Final = 4
ENTRY_WORDS: Final = ENTRY_SIZE // WORD_SIZE
BLOCK_WORDS_MAX: Final = max(
    SLOTS_PER_BLOCK * SLOT_SIZE // WORD_SIZE, ENTRIES_PER_BLOCK * ENTRY_WORDS
)
SUM_MASK: Final = (1 << 62) - 1
SEALED: Final = 1
PROVEN: Final = 2

_CRC_POSITION: Final = 12
_U64: Final = (1 << 64) - 1


def _multiplier(place: int) -> int:
    """Return an odd number below 2**30: a step of SplitMix64, so that the product has 62 bits."""
    mixed = ((place + 1) * 0x9E3779B97F4A7C15) & _U64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _U64
    return (mixed ^ (mixed >> 31)) >> 34 | 1


MULTIPLIERS: Final = tuple(_multiplier(place) for place in range(BLOCK_WORDS_MAX))


def slot_block_count(slot_count: int) -> int:
    """Return how many blocks the slots of a file make."""
    return -(-slot_count // SLOTS_PER_BLOCK)


def block_count(slot_count: int, entry_count: int) -> int:
    """Return how many blocks a file has: of slots, then of entries."""
    return slot_block_count(slot_count) + -(-entry_count // ENTRIES_PER_BLOCK)


def checksum_file_size(slot_count: int, entry_count: int) -> int:
    """Return the bytes of a checksum file."""
    return SUMS_POSITION + SUM_SIZE * block_count(slot_count, entry_count)


@dataclass(frozen=True, slots=True)
class ChecksumIdentity:
    """Which index file the checksums are of."""

    number: int
    slot_count: int
    entry_count: int

    def encode(self) -> bytes:
        """Return the 40 bytes."""
        return _with_crc(
            IDENTITY.pack(MAGIC, VERSION, 0, self.number, self.slot_count, self.entry_count)
        )

    @classmethod
    def decode(cls, data: bytes) -> ChecksumIdentity | None:
        """Read the first 40 bytes; None unless they are whole and of this version."""
        if len(data) < IDENTITY.size or not _crc_fits(data[: IDENTITY.size]):
            return None
        magic, version, _, number, slot_count, entry_count = IDENTITY.unpack_from(data)
        return (
            cls(number, slot_count, entry_count) if (magic, version) == (MAGIC, VERSION) else None
        )


@dataclass(frozen=True, slots=True)
class ChecksumRecord:
    """What an index file was when it was synced."""

    header: bytes
    tail_sum: int = 0
    sealed: bool = False
    proven: bool = False
    checked_ms: int = 0
    sequence: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the record."""
        flags = SEALED * self.sealed | PROVEN * self.proven
        return _with_crc(
            RECORD.pack(self.sequence, flags, 0, self.checked_ms, self.tail_sum, self.header)
        )

    @classmethod
    def decode(cls, data: bytes) -> ChecksumRecord | None:
        """Read a record; None unless it is whole."""
        if len(data) < RECORD.size or not _crc_fits(data[: RECORD.size]):
            return None
        sequence, flags, _, checked_ms, tail_sum, header = RECORD.unpack_from(data)
        if sequence <= 0:
            return None
        return cls(
            header, tail_sum, bool(flags & SEALED), bool(flags & PROVEN), checked_ms, sequence
        )

    def follow(self, before: ChecksumRecord | None) -> ChecksumRecord:
        """Return this record with the number after the one ``before``."""
        return replace(self, sequence=(before.sequence if before is not None else 0) + 1)

    @property
    def values(self) -> IndexHeader:
        """The header as values."""
        return IndexHeader.decode(self.header)


def record_position(sequence: int) -> int:
    """Return where the record of that number stands."""
    return RECORDS_POSITION + RECORD.size * (sequence % RECORD_COUNT)


def decode_records(page: bytes) -> list[ChecksumRecord]:
    """Return the whole records in the first 4096 bytes, oldest first."""
    starts = (RECORDS_POSITION + RECORD.size * place for place in range(RECORD_COUNT))
    found = (ChecksumRecord.decode(page[start : start + RECORD.size]) for start in starts)
    return sorted(
        (record for record in found if record is not None), key=lambda record: record.sequence
    )


def _with_crc(data: bytes) -> bytes:
    crc = crc32(data).to_bytes(4, "little")
    return data[:_CRC_POSITION] + crc + data[_CRC_POSITION + 4 :]


def _crc_fits(data: bytes) -> bool:
    blank = data[:_CRC_POSITION] + bytes(4) + data[_CRC_POSITION + 4 :]
    return crc32(blank).to_bytes(4, "little") == data[_CRC_POSITION : _CRC_POSITION + 4]
