"""Where batches land in the files, and what the blank at a file's end says."""

from __future__ import annotations

import pytest
from engine_store import LOG_FILE_SIZE, append, record, records_on_disk, small_config

from storage.format.record_layout import MAGIC_BLANK
from storage.writer import StoreWriter

RECORD_SIZE = len(record(body=b""))


@pytest.fixture
def writer(tmp_path):
    config = small_config(warm_ahead_bytes=1 << 12)
    with StoreWriter.open(tmp_path / "store", config) as writer:
        writer.create_topic("t", 1)
        yield writer


def blank_at(directory, commit_offset):
    start = commit_offset - commit_offset % LOG_FILE_SIZE
    data = (directory / "commitlog" / f"{start:020d}").read_bytes()[commit_offset - start :]
    return int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")


@pytest.mark.parametrize("left", [8, 9, RECORD_SIZE, RECORD_SIZE + 7])
def test_a_record_that_leaves_no_room_for_the_blank_moves_to_the_next_file(tmp_path, writer, left):
    first = append(writer, record(body=b"x" * (LOG_FILE_SIZE - RECORD_SIZE - left)))
    assert first.end_commit_offset == LOG_FILE_SIZE - left
    second = append(writer, record(body=b""))
    assert second.commit_offset == LOG_FILE_SIZE
    assert blank_at(tmp_path / "store", first.end_commit_offset) == (left, MAGIC_BLANK)


def test_a_record_that_leaves_exactly_the_blank_stays_in_the_file(writer):
    append(writer, record(body=b"x" * (LOG_FILE_SIZE - 2 * RECORD_SIZE - 8)))
    second = append(writer, record(body=b""))
    assert second.end_commit_offset == LOG_FILE_SIZE - 8


def test_a_batch_never_spans_files(tmp_path, writer):
    append(writer, record(body=b"x" * (LOG_FILE_SIZE - 3 * RECORD_SIZE)))
    batch = append(writer, record(body=b"") * 5)
    assert batch.commit_offset == LOG_FILE_SIZE
    assert [each.commit_offset for each in records_on_disk(tmp_path / "store")[1:]] == [
        LOG_FILE_SIZE + i * RECORD_SIZE for i in range(5)
    ]


def test_stores_killed_between_the_blank_and_the_next_record_go_on_in_the_next_file(tmp_path):
    directory = tmp_path / "store"
    with StoreWriter.open(directory, small_config()) as writer:
        writer.create_topic("t", 1)
        first = append(writer, record(body=b"x" * 60_000))
        append(writer, record(body=b"x" * 60_000))
    second = directory / "commitlog" / f"{LOG_FILE_SIZE:020d}"
    second.write_bytes(bytes(LOG_FILE_SIZE))
    (directory / "checkpoint").unlink()
    with StoreWriter.open(directory, small_config()) as writer:
        assert writer.recovered.end_offset in (first.end_commit_offset, LOG_FILE_SIZE)
        assert writer.describe_topic("t")[1] == [(0, 1)]
        assert append(writer, record(body=b"x" * 60_000)).commit_offset == LOG_FILE_SIZE
    assert len(records_on_disk(directory)) == 2
