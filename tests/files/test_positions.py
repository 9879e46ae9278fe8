"""The checkpoint page: what is believed after crashes, flips and a broker's run."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap

import pytest

from storage.checkpoint.positions import CheckpointFile, Role
from storage.errors import UnsupportedFormat
from storage.files.filesystem import FileSystem
from storage.format import checkpoint as layout

FILESYSTEM = FileSystem()
STORE = bytes(range(16))
BOOT = b"boot-id-of-tests"
HEADER = bytes(range(100, 140))


def open_page(path, role=Role.WRITER, boot_id=BOOT):
    return CheckpointFile.open(FILESYSTEM, path, role, boot_id=boot_id)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def writer(path):
    return open_page(path)


def store(writer, offset, *, clean=False):
    writer.durable.store(
        store_id=STORE,
        flushed_offset=offset,
        dispatched_offset=offset - 1,
        unit_count=offset // 10,
        physic_timestamp_ms=1_700_000_000_000 + offset,
        logics_timestamp_ms=1_700_000_000_000 + offset,
        clean=clean,
    )


def test_a_short_page_is_lengthened_by_the_writer_alone(path):
    path.write_bytes(struct.pack(">q", 77))
    with pytest.raises(FileNotFoundError):
        open_page(path, Role.READER)
    assert path.stat().st_size == 8
    assert open_page(path).durable.broker_fields.physic_timestamp_ms == 77
    assert path.stat().st_size == 4096


def test_a_slot_says_whether_only_what_is_synced_was_promised(writer, path):
    for synced_only in (True, False):
        writer.durable.store(
            store_id=STORE, flushed_offset=9, dispatched_offset=9, unit_count=1,
            synced_only=synced_only, clean=True,
        )  # fmt: skip
        found = open_page(path, Role.READER).durable.load()
        assert (found.synced_only, found.clean) == (synced_only, True)


def test_the_slot_is_durable_before_it_counts(writer, path, monkeypatch):
    """A store whose sync fails must raise, so that it is not relied on."""
    store(writer, 100)

    def fail():
        raise OSError("injected")

    monkeypatch.setattr(writer._file, "sync", fail)
    with pytest.raises(OSError, match="injected"):
        store(writer, 200)


def test_broker_fields_are_big_endian_and_the_index_time_is_left_alone(writer, path):
    indexer = open_page(path, Role.INDEXER)
    indexer.durable.store_index(
        store_id=STORE,
        indexed_offset=5,
        file_name=7,
        file_header=HEADER,
        index_timestamp_ms=123_456,
    )
    store(writer, 1000)
    fields = struct.unpack_from(">5q", path.read_bytes())
    assert fields == (1_700_000_001_000, 1_700_000_001_000, 123_456, 0, 0)
    writer.durable.store(store_id=STORE, flushed_offset=2000, dispatched_offset=2000, unit_count=7)
    assert struct.unpack_from(">5q", path.read_bytes()) == fields
    assert writer.durable.load().trusted


def test_the_indexer_leaves_the_writer_trusted_and_the_other_way_round(writer, path):
    indexer = open_page(path, Role.INDEXER)
    for number in range(1, 6):
        store(writer, number * 100)
        indexer.durable.store_index(
            store_id=STORE,
            indexed_offset=number * 90,
            file_name=20260101000000000 + number,
            file_header=HEADER,
            index_timestamp_ms=number,
            clean=number == 5,
        )
        slot = writer.durable.load()
        assert (slot.trusted, slot.clean, slot[2:4]) == (True, False, (STORE, number * 100))
        assert indexer.durable.load_index() == (
            number == 5, number, STORE, number * 90, 20260101000000000 + number, HEADER,
        )  # fmt: skip


@pytest.mark.parametrize("field", [0, 8, 24, 32])
def test_a_broker_that_ran_since_makes_the_slots_stale(writer, path, field):
    store(writer, 1000)
    page = bytearray(path.read_bytes())
    struct.pack_into(">q", page, field, 1_800_000_000_000)
    path.write_bytes(page)
    durable = open_page(path).durable.load()
    assert not durable.trusted
    assert durable.store_id == STORE


def test_a_broker_touches_only_its_fields(writer, path):
    """What a broker writes to index time belongs to the indexer and says nothing of the log."""
    store(writer, 1000)
    page = bytearray(path.read_bytes())
    struct.pack_into(">q", page, 16, 99)
    path.write_bytes(page)
    assert open_page(path).durable.load().trusted


def test_every_flipped_bit_of_the_page_is_harmless(path):
    """All 32,768: the slot is the last or none is trusted; damage costs trust, not truth."""
    writer = open_page(path)
    indexer = open_page(path, Role.INDEXER)
    indexes = []
    for offset in (1000, 2000):
        store(writer, offset)
        indexer.durable.store_index(
            store_id=STORE, indexed_offset=offset, file_name=offset, file_header=HEADER
        )
        indexes.append(indexer.durable.load_index())
    whole = path.read_bytes()
    newest = layout.WRITER_SLOT_POSITIONS[1]
    newest_slot = range(newest, newest + layout.WRITER_SLOT_LAYOUT.size)
    reader = open_page(path, Role.READER)
    with path.open("r+b", buffering=0) as file:
        for bit in range(4096 * 8):
            byte = bit // 8
            os.pwrite(file.fileno(), bytes([whole[byte] ^ 1 << bit % 8]), byte)
            durable = reader.durable.load()
            # Without the newest slot nothing vouches for the newest broker fields.
            writers = byte < 40 and not 16 <= byte < 24
            assert durable.trusted == (not writers and byte not in newest_slot), bit
            promised = (STORE, 2000, 1999, 200) if durable.trusted else (STORE, 0, 0, 0)
            assert durable[2:6] == promised and not durable.synced_only, bit
            assert reader.durable.load_index() in indexes, bit
            os.pwrite(file.fileno(), whole[byte : byte + 1], byte)


def test_a_newer_format_is_refused(writer, path, monkeypatch):
    monkeypatch.setattr(layout, "VERSION", 2)
    store(writer, 100)
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat, match="version 2"):
        open_page(path, Role.READER).durable.load()


def test_live_positions_cross_processes_and_hold_until_a_reboot(writer, path):
    writer.start_writer(
        min_commit_offset=5, end_offset=100, dispatched_offset=90, config_generation=3
    )
    reader = open_page(path, Role.READER)
    assert reader.writer_is_current
    assert reader.writer_is_writable
    writer.appended_offset = 104
    writer.committed_offset = 103
    writer.publish_flushed(102)
    writer.publish_confirm(101)
    writer.publish_dispatched(100)
    writer.publish_min_commit_offset(50)
    writer.publish_config_generation(4)
    writer.publish_writable(False)
    assert (
        reader.appended_offset, reader.committed_offset, reader.flushed_offset,
        reader.confirm_offset, reader.dispatched_offset, reader.min_commit_offset,
        reader.config_generation, reader.writer_is_writable,
    ) == (104, 103, 102, 101, 100, 50, 4, False)  # fmt: skip
    assert not open_page(path, Role.READER, b"another boot id!").writer_is_current


@pytest.mark.parametrize(
    "publish", ["publish_confirm", "publish_dispatched", "publish_min_commit_offset",
                "publish_config_generation", "publish_writable"],
)  # fmt: skip
def test_what_readers_wait_for_bumps_the_word(writer, path, publish):
    reader = open_page(path, Role.READER)
    word = reader.writer_word
    getattr(writer, publish)(1)
    assert reader.wait_for_writer(word, 30) != word


def test_positions_never_tear(path):
    """A reader beside a writer that jumps between two values sees these two and nothing else."""
    low, high = 0x0101010101010101, 0x7E7E7E7E7E7E7E7E
    page = open_page(path)
    page.start_writer(min_commit_offset=0, end_offset=low, dispatched_offset=0, config_generation=0)
    program = textwrap.dedent(f"""
        from pathlib import Path
        from storage.files.filesystem import FileSystem
        from storage.checkpoint.positions import CheckpointFile, Role
        page = CheckpointFile.open(FileSystem(), Path({str(path)!r}), Role.WRITER, boot_id={BOOT!r})
        while True:
            page.appended_offset = {low}; page.appended_offset = {high}
            page._store_big_endian(0, {low}); page._store_big_endian(0, {high})
    """)
    reader = open_page(path, Role.READER)
    with subprocess.Popen([sys.executable, "-c", program]) as writer:
        try:
            seen = set()
            while len(seen) < 2:
                seen.add(reader.appended_offset)
            for _ in range(200_000):
                seen.add(reader.appended_offset)
                seen.add(reader._words[0])
        finally:
            writer.send_signal(signal.SIGKILL)
    assert seen <= {0, low, high}


def test_positions_are_stored_by_their_owner_alone(writer, path):
    """One owner a field is what makes a plain store enough."""
    with pytest.raises(PermissionError):
        writer.publish_indexed(1)
    with pytest.raises(PermissionError):
        open_page(path, Role.INDEXER).publish_confirm(1)
    with pytest.raises((PermissionError, TypeError)):
        open_page(path, Role.READER).publish_confirm(1)
