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
    8       8     i64   boot_id_low
    16      8     i64   boot_id_high
    24      8     i64   session            random, one for each run of the writer
    32      8     i64   min_commit_offset  start of the oldest record
    40      8     i64   appended_offset    end of what is appended, the pool included
    48      8     i64   committed_offset   end of what is in the page cache
    56      8     i64   flushed_offset     end of what is durable
    64      8     i64   confirm_offset     end of what followers and readers may read
    72      8     i64   dispatched_offset  end of what the consume queues cover
    80      8     i64   config_generation  changes with the topic table
    88      8     i64   flags              bit 0: writable
    96      4     u32   wake_word          futex, bumped with confirm and dispatched offset
    100     4     u32   reserved
    104

Indexer live sector, native words, at byte 1024::

    offset  size  type  field
    0       8     i64   magic
    8       8     i64   boot_id_low
    16      8     i64   boot_id_high
    24      8     i64   session
    32      8     i64   indexed_offset     end of what queries by key cover
    40      4     u32   wake_word          futex, bumped with indexed_offset
    44      4     u32   reserved
    48

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

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from storage.errors import UnsupportedFormat
from storage.format.index import HEADER_SIZE as INDEX_HEADER_SIZE

PAGE_SIZE: Final = 4096
SECTOR_SIZE: Final = 512  # one region each
VERSION: Final = 1

BROKER_LAYOUT: Final = Struct(">5q")
BROKER_SIZE: Final = 40
INDEX_TIMESTAMP_POSITION: Final = 16  # the indexer's; the writer owns the other four

WRITER_LIVE_POSITION: Final = 512
WRITER_LIVE_LAYOUT: Final = Struct("<12qII")
WRITER_LIVE_WORDS: Final = (
    "magic", "boot_id_low", "boot_id_high", "session",
    "min_commit_offset", "appended_offset", "committed_offset", "flushed_offset",
    "confirm_offset", "dispatched_offset", "config_generation", "flags", "wake_word",
)  # fmt: skip
WRITER_LIVE_MAGIC: Final = 0x324C52574B545350  # "PSTKWRL2" read little-endian
INDEXER_LIVE_POSITION: Final = 1024
INDEXER_LIVE_LAYOUT: Final = Struct("<5qII")
INDEXER_LIVE_WORDS: Final = (
    "magic", "boot_id_low", "boot_id_high", "session",
    "indexed_offset", "wake_word",
)  # fmt: skip
INDEXER_LIVE_MAGIC: Final = 0x324C58494B545350

WRITER_SLOT_POSITIONS: Final = (1536, 2048)
WRITER_SLOT_LAYOUT: Final = Struct("<qiiq16sqqq32s32sI")
WRITER_SLOT_MAGIC: Final = 0x315352574B545350
INDEXER_SLOT_POSITIONS: Final = (2560, 3072)
INDEXER_SLOT_LAYOUT: Final = Struct("<qiiq16sqq40sI")
INDEXER_SLOT_MAGIC: Final = 0x315358494B545350

FLAG_CLEAN: Final = 1
FLAG_SYNCED_ONLY: Final = 2
_CRC_SIZE: Final = 4


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


class WriterSlot(NamedTuple):
    """What the writer knows to be durable: nothing without a slot.

    ``synced_only``: what was appended after the slot was acknowledged and shown only once it was synced.
    ``trusted`` is not stored: bytes 0-39 are as we left them, so no broker has run since.
    """

    clean: bool = False
    sequence: int = 0
    store_id: bytes = b""
    flushed_offset: int = 0
    dispatched_offset: int = 0
    unit_count: int = 0
    broker_fields: bytes = b""
    broker_fields_before: bytes = b""
    synced_only: bool = False
    trusted: bool = False

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
        """Read a slot; None if it is not whole. Raises UnsupportedFormat."""
        found = _slot_fields(page, position, WRITER_SLOT_LAYOUT, WRITER_SLOT_MAGIC)
        if found is None:
            return None
        flags, *rest = found
        slot = cls(bool(flags & FLAG_CLEAN), *rest)
        return slot._replace(synced_only=bool(flags & FLAG_SYNCED_ONLY))


class IndexerSlot(NamedTuple):
    """What the indexer knows to be durable, of the store whose id it carries and no other."""

    clean: bool = False
    sequence: int = 0
    store_id: bytes = b""
    indexed_offset: int = 0
    file_name: int = 0
    file_header: bytes = bytes(INDEX_HEADER_SIZE)

    @property
    def present(self) -> bool:
        """Whether there is a slot."""
        return self.sequence > 0

    def encode(self) -> bytes:
        """Return the slot's bytes with their CRC."""
        data = INDEXER_SLOT_LAYOUT.pack(
            INDEXER_SLOT_MAGIC, VERSION, FLAG_CLEAN * self.clean, *self[1:], 0
        )
        return _with_crc(data)

    @classmethod
    def decode(cls, page: bytes, position: int) -> IndexerSlot | None:
        """Read a slot; None if it is not whole. Raises UnsupportedFormat."""
        found = _slot_fields(page, position, INDEXER_SLOT_LAYOUT, INDEXER_SLOT_MAGIC)
        return None if found is None else cls(bool(found[0] & FLAG_CLEAN), *found[1:])


def writer_slots(page: bytes) -> dict[int, WriterSlot]:
    """Return the writer's whole slots, by position in the page. Raises UnsupportedFormat."""
    slots = {position: WriterSlot.decode(page, position) for position in WRITER_SLOT_POSITIONS}
    return {position: slot for position, slot in slots.items() if slot is not None}


def indexer_slots(page: bytes) -> dict[int, IndexerSlot]:
    """Return the indexer's whole slots, by position in the page. Raises UnsupportedFormat."""
    slots = {position: IndexerSlot.decode(page, position) for position in INDEXER_SLOT_POSITIONS}
    return {position: slot for position, slot in slots.items() if slot is not None}


def newest_writer_slot(page: bytes) -> WriterSlot:
    """Return the writer's whole slot that was stored last; only its id if a broker has run since.

    Raises UnsupportedFormat.
    """
    slots = writer_slots(page).values()
    newest = max(slots, key=attrgetter("sequence"), default=WriterSlot())
    if _is_ours(page, slots):
        return newest._replace(trusted=True)
    return WriterSlot(store_id=newest.store_id)


def newest_indexer_slot(page: bytes) -> IndexerSlot:
    """Return the indexer's whole slot that was stored last. Raises UnsupportedFormat."""
    slots = indexer_slots(page).values()
    return max(slots, key=attrgetter("sequence"), default=IndexerSlot())


def _is_ours(page: bytes, slots: Iterable[WriterSlot]) -> bool:
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
        for slot in slots
    )


def _words(fields: bytes) -> list[bytes]:
    return [fields[at : at + 8] for at in range(0, len(fields), 8)]


def _with_crc(data: bytes) -> bytes:
    covered = data[:-_CRC_SIZE]
    return covered + crc32(covered).to_bytes(_CRC_SIZE, "little")


def _is_whole(data: bytes, size: int) -> bool:
    return len(data) == size and _with_crc(data) == data


def _slot_fields(page: bytes, position: int, slot: Struct, magic: int) -> list[Any] | None:
    """Return the fields of a slot from its flags on, without the CRC; None if it is not whole."""
    data = page[position : position + slot.size]
    if not _is_whole(data, slot.size):
        return None
    found_magic, version, *fields, _crc = slot.unpack(data)
    if found_magic != magic:
        return None
    if version > VERSION:
        raise UnsupportedFormat(f"checkpoint slot of version {version}; this code knows {VERSION}")
    return fields
