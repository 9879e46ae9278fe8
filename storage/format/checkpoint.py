"""The checkpoint page: 4096 bytes through which a store's processes know of each other.

Bytes 0-39 are a broker's, big-endian; a broker reads and writes nothing else, so the rest of the page
is ours. Each region is one 512-byte sector, written by one process. The *live* sectors hold aligned
8-byte words, stored and loaded whole, that say how far things are in the page cache; the *slots* say
how far things are durable, two of a kind taking turns, each under a CRC-32.

Broker fields, big-endian, at byte 0::

    offset  size  type  field
    0       8     i64   physic_timestamp_ms    store time of the last flushed record
    8       8     i64   logics_timestamp_ms    store time of the last queue entry
    16      8     i64   index_timestamp_ms     end time of the last full index file
    24      8     i64   master_flushed_offset  0 without replication
    32      8     i64   confirm_offset         start of the last valid record
    40

Writer live sector, native words, at byte 512::

    offset  size  type  field
    0       8     i64   magic
    8       8     i64   version
    16      8     i64   boot_id_low
    24      8     i64   boot_id_high
    32      8     i64   session            random, one for each run of the writer
    40      8     i64   process_id
    48      8     i64   min_commit_offset  start of the oldest record
    56      8     i64   appended_offset    end of what is appended, the pool included
    64      8     i64   committed_offset   end of what is in the page cache
    72      8     i64   flushed_offset     end of what is durable
    80      8     i64   confirm_offset     end of what followers and readers may read
    88      8     i64   dispatched_offset  end of what the consume queues cover
    96      8     i64   config_generation  changes with the topic table
    104     8     i64   flags              bit 0: writable
    112     4     u32   wake_word          futex, bumped with confirm and dispatched offset
    116     4     u32   reserved
    120

Indexer live sector, native words, at byte 1024::

    offset  size  type  field
    0       8     i64   magic
    8       8     i64   version
    16      8     i64   boot_id_low
    24      8     i64   boot_id_high
    32      8     i64   session
    40      8     i64   process_id
    48      8     i64   indexed_offset     end of what queries by key cover
    56      8     i64   flags              bit 0: running
    64      4     u32   wake_word          futex, bumped with indexed_offset
    68      4     u32   reserved
    72

Writer slots, little-endian, at bytes 1536 and 2048::

    offset  size  type  field
    0       8     i64   magic
    8       4     i32   version
    12      4     i32   flags              bit 0: clean stop; bit 1: synced before acknowledged or shown
    16      8     i64   sequence           the valid slot with the greater one counts
    24      16    16s   store_id           random, given once to a store
    40      8     i64   flushed_offset     durable end of the commit log
    48      8     i64   dispatched_offset  the consume queues are durable up to here
    56      8     i64   unit_count         that their files then hold, over all queues
    64      32    32s   broker_fields      bytes 0-15 and 24-39 as this slot leaves them
    96      32    32s   broker_fields_before
    128     4     u32   crc                CRC-32 of bytes 0-127
    132

Indexer slots, little-endian, at bytes 2560 and 3072::

    offset  size  type  field
    0       8     i64   magic
    8       4     i32   version
    12      4     i32   flags              bit 0: clean stop
    16      8     i64   sequence
    24      16    16s   store_id           the store that was indexed
    40      8     i64   indexed_offset     the index files are durable up to here
    48      8     i64   file_name          17 digits of the last index file, 0 without one
    56      40    40s   file_header        its header as of indexed_offset
    96      4     u32   crc                CRC-32 of bytes 0-95
    100
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final, TypeVar
from zlib import crc32

PAGE_SIZE: Final = 4096
SECTOR_SIZE: Final = 512  # one region each
VERSION: Final = 1

BROKER_LAYOUT: Final = Struct(">5q")
BROKER_SIZE: Final = 40
INDEX_TIMESTAMP_POSITION: Final = 16  # the indexer's; the writer owns the other four

WRITER_LIVE_POSITION: Final = 512
WRITER_LIVE_LAYOUT: Final = Struct("<14qII")
WRITER_LIVE_WORDS: Final = (
    "magic", "version", "boot_id_low", "boot_id_high", "session", "process_id",
    "min_commit_offset", "appended_offset", "committed_offset", "flushed_offset",
    "confirm_offset", "dispatched_offset", "config_generation", "flags", "wake_word",
)  # fmt: skip
WRITER_LIVE_MAGIC: Final = 0x314C52574B545350  # "PSTKWRL1" read little-endian
INDEXER_LIVE_POSITION: Final = 1024
INDEXER_LIVE_LAYOUT: Final = Struct("<8qII")
INDEXER_LIVE_WORDS: Final = (
    "magic", "version", "boot_id_low", "boot_id_high", "session", "process_id",
    "indexed_offset", "flags", "wake_word",
)  # fmt: skip
INDEXER_LIVE_MAGIC: Final = 0x314C58494B545350

WRITER_SLOT_POSITIONS: Final = (1536, 2048)
WRITER_SLOT_LAYOUT: Final = Struct("<qiiq16sqqq32s32sI")
WRITER_SLOT_MAGIC: Final = 0x315352574B545350
INDEXER_SLOT_POSITIONS: Final = (2560, 3072)
INDEXER_SLOT_LAYOUT: Final = Struct("<qiiq16sqq40sI")
INDEXER_SLOT_MAGIC: Final = 0x315358494B545350

FLAG_CLEAN: Final = 1
FLAG_SYNCED_ONLY: Final = 2
_CRC_SIZE: Final = 4


class UnknownVersion(ValueError):
    """A slot is intact but was written by a newer version of this code."""


@dataclass(frozen=True, slots=True)
class BrokerFields:
    """Bytes 0-39, times in Unix milliseconds."""

    physic_timestamp_ms: int = 0
    logics_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    def encode(self) -> bytes:
        """Return the 40 bytes."""
        return BROKER_LAYOUT.pack(
            self.physic_timestamp_ms,
            self.logics_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_offset,
        )

    @classmethod
    def decode(cls, page: bytes) -> BrokerFields:
        """Read the first 40 bytes of a page; a shorter one reads as padded with zeros."""
        return cls(*BROKER_LAYOUT.unpack_from(page[:BROKER_SIZE].ljust(BROKER_SIZE, b"\0")))


def writer_broker_fields(page: bytes) -> bytes:
    """Return the 32 broker bytes that the writer owns: all but the indexer's timestamp."""
    return page[:INDEX_TIMESTAMP_POSITION] + page[INDEX_TIMESTAMP_POSITION + 8 : BROKER_SIZE]


@dataclass(frozen=True, slots=True)
class WriterSlot:
    """What the writer knows to be durable."""

    clean: bool
    sequence: int
    store_id: bytes
    flushed_offset: int
    dispatched_offset: int
    unit_count: int
    broker_fields: bytes
    broker_fields_before: bytes
    synced_only: bool = False

    def encode(self) -> bytes:
        """Return the slot's bytes with their CRC."""
        data = WRITER_SLOT_LAYOUT.pack(
            WRITER_SLOT_MAGIC, VERSION,
            FLAG_CLEAN * self.clean | FLAG_SYNCED_ONLY * self.synced_only,
            self.sequence, self.store_id,
            self.flushed_offset, self.dispatched_offset, self.unit_count,
            self.broker_fields, self.broker_fields_before, 0,
        )  # fmt: skip
        return _with_crc(data)

    @classmethod
    def decode(cls, page: bytes, position: int) -> WriterSlot | None:
        """Read a slot; None if it is not whole. Raises UnknownVersion."""
        data = page[position : position + WRITER_SLOT_LAYOUT.size]
        if not _is_whole(data, WRITER_SLOT_LAYOUT.size):
            return None
        magic, version, flags, *rest, _crc = WRITER_SLOT_LAYOUT.unpack(data)
        return (
            replace(
                cls(bool(flags & FLAG_CLEAN), *rest), synced_only=bool(flags & FLAG_SYNCED_ONLY)
            )
            if _is_known(magic, WRITER_SLOT_MAGIC, version)
            else None
        )


@dataclass(frozen=True, slots=True)
class IndexerSlot:
    """What the indexer knows to be durable."""

    clean: bool
    sequence: int
    store_id: bytes
    indexed_offset: int
    file_name: int
    file_header: bytes

    def encode(self) -> bytes:
        """Return the slot's bytes with their CRC."""
        data = INDEXER_SLOT_LAYOUT.pack(
            INDEXER_SLOT_MAGIC, VERSION, FLAG_CLEAN * self.clean, self.sequence, self.store_id,
            self.indexed_offset, self.file_name, self.file_header, 0,
        )  # fmt: skip
        return _with_crc(data)

    @classmethod
    def decode(cls, page: bytes, position: int) -> IndexerSlot | None:
        """Read a slot; None if it is not whole. Raises UnknownVersion."""
        data = page[position : position + INDEXER_SLOT_LAYOUT.size]
        if not _is_whole(data, INDEXER_SLOT_LAYOUT.size):
            return None
        magic, version, flags, *rest, _crc = INDEXER_SLOT_LAYOUT.unpack(data)
        return (
            cls(bool(flags & FLAG_CLEAN), *rest)
            if _is_known(magic, INDEXER_SLOT_MAGIC, version)
            else None
        )


_Slot = TypeVar("_Slot", WriterSlot, IndexerSlot)


def writer_slots(page: bytes) -> dict[int, WriterSlot]:
    """Return the writer's whole slots, by position in the page. Raises UnknownVersion."""
    return _whole_slots(page, WRITER_SLOT_POSITIONS, WriterSlot.decode)


def indexer_slots(page: bytes) -> dict[int, IndexerSlot]:
    """Return the indexer's whole slots, by position in the page. Raises UnknownVersion."""
    return _whole_slots(page, INDEXER_SLOT_POSITIONS, IndexerSlot.decode)


def newest_slot(slots: Mapping[int, _Slot]) -> _Slot:
    """Return the slot that was stored last; there is at least one."""
    return max(slots.values(), key=lambda slot: slot.sequence)


def is_ours(page: bytes, slots: Mapping[int, WriterSlot]) -> bool:
    """Whether bytes 0-39 are as one of the slots left or found them: no broker has run since.

    The writer stores them one after the other, and may be looked at or killed between two: each field
    counts by itself.
    """
    fields = _words(writer_broker_fields(page))
    return any(
        all(
            field in (after, before)
            for field, after, before in zip(
                fields, _words(slot.broker_fields), _words(slot.broker_fields_before), strict=True
            )
        )
        for slot in slots.values()
    )


def _words(fields: bytes) -> list[bytes]:
    return [fields[at : at + 8] for at in range(0, len(fields), 8)]


def _whole_slots(
    page: bytes, positions: tuple[int, int], decode: Callable[[bytes, int], _Slot | None]
) -> dict[int, _Slot]:
    slots = {position: decode(page, position) for position in positions}
    return {position: slot for position, slot in slots.items() if slot is not None}


def _with_crc(data: bytes) -> bytes:
    covered = data[:-_CRC_SIZE]
    return covered + crc32(covered).to_bytes(_CRC_SIZE, "little")


def _is_whole(data: bytes, size: int) -> bool:
    return len(data) == size and _with_crc(data) == data


def _is_known(magic: int, expected: int, version: int) -> bool:
    if magic != expected:
        return False
    if version > VERSION:
        raise UnknownVersion(f"checkpoint slot of version {version}; this code knows {VERSION}")
    return True
