"""Files as one address space, and what crashes leave of them."""

from __future__ import annotations

import pytest

from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import (
    MappedFileQueue,
    ReadOnlyMappedFileQueue,
    file_path,
)

SIZE = 8192
FILESYSTEM = FileSystem()


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


def test_a_lost_middle_file_is_a_hole(queue):
    fill(queue, 4)
    FILESYSTEM.unlink(file_path(queue.directory, SIZE))
    readers = reader(queue)
    assert readers.find(SIZE) is None
    assert readers.find(2 * SIZE).start_offset == 2 * SIZE
    assert readers.next_start(SIZE) == 2 * SIZE
    assert readers.next_start(3 * SIZE) is None


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_short_last_file_is_tolerated_and_lengthened(queue, size):
    fill(queue, 2)
    (queue.directory / f"{2 * SIZE:020d}").write_bytes(b"\7" * size)
    again = MappedFileQueue(FILESYSTEM, queue.directory, file_size=SIZE)
    assert again.end_offset == 2 * SIZE + size
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
