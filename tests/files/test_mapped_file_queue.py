"""Files as one address space, and what crashes leave of them."""

from __future__ import annotations

import pytest

from storage.errors import StoreFull
from storage.files.filesystem import OsFileSystem
from storage.files.mapped_file_queue import (
    MappedFileQueue,
    ReadOnlyMappedFileQueue,
    file_path,
)

SIZE = 8192
FILESYSTEM = OsFileSystem()


@pytest.fixture
def queue(tmp_path):
    return MappedFileQueue(FILESYSTEM, tmp_path / "log", file_size=SIZE, mapped_files_max=2)


def reader(queue, maximum=2):
    return ReadOnlyMappedFileQueue(
        FILESYSTEM, queue.directory, file_size=SIZE, mapped_files_max=maximum
    )


def array_at(queue, offset, length):
    file = queue.find(offset)
    return file.array[offset - file.start_offset :][:length]


def fill(queue, count):
    for index in range(count):
        mapped = queue.create(index * SIZE)
        mapped.write_array[:] = index + 1
        mapped.mark_appended(SIZE)
        mapped.flush()


def test_offsets_map_to_files_across_the_whole_log(queue):
    fill(queue, 4)
    assert (queue.first_offset, queue.end_offset) == (0, 4 * SIZE)
    readers = reader(queue)
    for offset in (0, SIZE - 1, SIZE, 3 * SIZE, 4 * SIZE - 1):
        for each in (queue, readers):
            assert each.find(offset).start_offset == offset // SIZE * SIZE
            assert array_at(each, offset, 1).tolist() == [offset // SIZE + 1]
    assert readers.find(4 * SIZE) is None
    assert readers.find(-1) is None
    assert readers.find(4 * SIZE) is None


def test_no_more_files_are_mapped_than_the_bound(queue):
    fill(queue, 10)
    readers = reader(queue, maximum=3)
    held = [array_at(readers, index * SIZE, 1) for index in range(10)]
    assert len(readers._mapped) == 3
    assert len(queue._mapped) <= 2
    assert [int(view[0]) for view in held] == list(range(1, 11))


def test_a_file_that_is_not_flushed_stays_mapped(queue):
    """Letting go of it would forget how far it is."""
    files = [queue.create(index * SIZE) for index in range(4)]
    for mapped in files:
        mapped.mark_appended(10)
    assert all(queue.find(mapped.start_offset) is mapped for mapped in files)


def test_a_lost_middle_file_is_a_hole(queue):
    fill(queue, 4)
    FILESYSTEM.unlink(file_path(queue.directory, SIZE))
    readers = reader(queue)
    assert readers.find(SIZE) is None
    assert readers.find(2 * SIZE).start_offset == 2 * SIZE
    assert readers.next_start(SIZE) == 2 * SIZE
    assert readers.next_start(3 * SIZE) is None


def test_a_deleted_file_stays_readable_where_it_is_held(queue):
    fill(queue, 2)
    readers = reader(queue)
    view = array_at(readers, 0, 4)
    queue.remove(0)
    readers.refresh()
    assert view.tolist() == [1] * 4


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_short_last_file_is_tolerated_and_lengthened(queue, size):
    fill(queue, 2)
    (queue.directory / f"{2 * SIZE:020d}").write_bytes(b"\7" * size)
    again = MappedFileQueue(FILESYSTEM, queue.directory, file_size=SIZE)
    assert again.end_offset == 2 * SIZE + size
    assert (again.last() is None) == (size == 0)
    assert again.find(2 * SIZE + size) is None
    mapped = again.extend(2 * SIZE, SIZE)
    assert again.end_offset == 3 * SIZE
    assert mapped.array.tolist() == [7] * size + [0] * (SIZE - size)
    assert again.find(3 * SIZE - 1) is mapped
    assert (queue.directory / f"{2 * SIZE:020d}").stat().st_blocks * 512 >= SIZE


def test_removing_from_an_offset_leaves_what_is_before(queue):
    fill(queue, 4)
    removed = queue.remove_from(2 * SIZE)
    assert [entry.start_offset for entry in removed] == [2 * SIZE, 3 * SIZE]
    assert [path.name for path in sorted(queue.directory.iterdir())] == [
        f"{0:020d}",
        f"{SIZE:020d}",
    ]
    assert queue.end_offset == 2 * SIZE


def test_positions_follow_append_and_flush(queue):
    mapped = queue.create(0)
    mapped.write_array[:5] = 1
    mapped.mark_appended(5)
    assert (mapped.appended_position, mapped.committed_position, mapped.flushed_position) == (
        5,
        5,
        0,
    )
    assert mapped.flush() == 5
    mapped.reserve(SIZE)
    assert mapped.commit() == 5


def test_a_failed_flush_does_not_raise_the_position(queue, monkeypatch):
    mapped = queue.create(0)
    mapped.mark_appended(5)

    def fail():
        raise OSError("injected")

    monkeypatch.setattr(mapped._file, "sync", fail)
    with pytest.raises(OSError, match="injected"):
        mapped.flush()
    assert mapped.flushed_position == 0


def test_store_full_while_creating_takes_no_file_in(queue, monkeypatch):
    def full(*_, **__):
        raise StoreFull("injected")

    monkeypatch.setattr(FILESYSTEM, "create", full, raising=False)
    with pytest.raises(StoreFull):
        queue.create(0)
    monkeypatch.undo()
    assert queue.entries == []
    assert queue.create(0).size == SIZE
