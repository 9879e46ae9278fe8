"""What an indexer has in memory of an index file: what holds keys, and not the holes of a file of 400 MiB."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config

from storage.clock import SystemClock
from storage.files.filesystem import OsFileSystem
from storage.format.index import slot_position
from storage.index import builder as index_builder
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.view.index.index_file import list_index_files
from storage.writer import StoreWriter

SLOTS, ENTRIES = 100_000, 5_000_000  # a broker's entries are four times as many
CONFIG = small_config(index_slot_count=SLOTS, index_entry_count=ENTRIES, scrub_bytes_per_s=1 << 40)


def index_file(store: Path) -> Path:
    ((_, _, path),) = list_index_files(OsFileSystem(), store / "index")
    return path


def mapped_bytes(path: Path) -> int:
    """Return how much of a file is mapped and in memory, of this process."""
    size, is_of_file, inode = 0, False, str(path.stat().st_ino)  # the file got its name later
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if not fields[0].endswith(":"):
            is_of_file = fields[4] == inode
        elif is_of_file and fields[0] == "Rss:":
            size += int(fields[1]) << 10
    return size


@pytest.mark.parametrize("has_checksums", [True, False])
def test_after_a_restart_an_indexer_has_no_holes_of_its_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_checksums: bool
) -> None:
    monkeypatch.setattr(index_builder, "LOOK_S", 0.0)
    store = tmp_path / "store"
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
        writer.put([Message(topic="t", body=b"x", keys=(key,)) for key in ("a", "b", "c")])
        assert writer.wait_acknowledged(writer.appended_offset, 10)
        for _ in range(2):
            with StoreIndexer.open(
                store, CONFIG, filesystem=OsFileSystem(), clock=SystemClock()
            ) as indexer:
                for _ in range(100):
                    indexer.step()
                assert indexer.indexed_offset == writer.appended_offset
                path = index_file(store)
                assert 0 < mapped_bytes(path) < slot_position(SLOTS) + (8 << 20)
            if not has_checksums:
                (store / "index-checksums" / "table").unlink()
