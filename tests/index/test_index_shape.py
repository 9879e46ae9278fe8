"""The number of slots is deduced from a file's entries, as a broker writes it nowhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files.filesystem import FileSystem
from storage.index.index_file import IndexFile, IndexKeys
from storage.view.index.index_file import IndexShape
from storage.view.index.shape import BROKER_SHAPE, deduce_slot_count, find_index_shape


@pytest.mark.parametrize("shape", [IndexShape(20, 120), IndexShape(7, 30), IndexShape(500, 40)])
def test_entries_show_how_many_slots_there_are(tmp_path: Path, shape: IndexShape) -> None:
    index = IndexFile.create(FileSystem(), tmp_path / "20260101000000000", shape)
    count = shape.entry_count - 5
    hashes = np.random.default_rng(0).integers(0, 1 << 31, count)
    offsets, times = np.arange(count) * 300 + 4_096, np.full(count, 1_700_000_000_000)
    assert index.put(IndexKeys(hashes, offsets, times), 0, count) == count
    index.sync()
    index.close()
    assert find_index_shape(FileSystem(), tmp_path, BROKER_SHAPE) == shape


@given(st.binary(min_size=40, max_size=400), st.integers(0, 20))
@settings(deadline=None)
def test_any_bytes_have_at_most_one_number(data: bytes, next_entry: int) -> None:
    file = np.frombuffer(data[:36] + next_entry.to_bytes(4, "big") + data, np.uint8)
    assert 0 <= deduce_slot_count(file) <= len(data) // 4
