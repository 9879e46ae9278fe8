"""What a reader sees of a live store: statuses, limits, filters, damage, growth, files that go."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import PASSING, records_in
from golden import golden_copy

from storage import MessageStore, StoreConfig
from storage.errors import (
    DamagedRecord,
    InvalidMessage,
    NotAStore,
    QueueNotFound,
    RecordNotFound,
    StoreClosed,
    TopicNotFound,
)
from storage.format.record import Record, decode_record
from storage.message import Message, PullResult, PullStatus, PutResult
from storage.reader import StoreReader

CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=50,
    index_entry_count=200, flush_interval_ms=10,
)  # fmt: skip


def decoded(result: PullResult) -> list[Record]:
    """All records of a pull; the slices together hold exactly so many."""
    records = records_in(result.slices)
    assert len(records) == result.record_count
    return records


def bodies(result: PullResult) -> list[bytes]:
    return [record.body for record in decoded(result)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 4)
        yield store


def fill(store: MessageStore, count: int, *, queue_id: int = 0, tag: str = "") -> list[PutResult]:
    return store.put_all(
        [Message(topic="t", body=b"%d" % n, tag=tag, queue_id=queue_id) for n in range(count)]
    )


def test_adjacent_records_come_as_one_slice_and_read_only(store: MessageStore) -> None:
    fill(store, 20)
    result = store.pull("t", 0, queue_offset=0)
    assert len(result.slices) == 1
    with pytest.raises(TypeError):
        result.slices[0][0] = 0


def test_offsets_outside_the_queue_have_their_statuses(store: MessageStore) -> None:
    fill(store, 5)
    assert store.pull("t", 0, queue_offset=-1).status is PullStatus.OFFSET_TOO_SMALL
    assert store.pull("t", 0, queue_offset=-1).next_offset == 0
    assert store.pull("t", 0, queue_offset=5).status is PullStatus.OFFSET_OVERFLOW_ONE
    badly = store.pull("t", 0, queue_offset=6)
    assert (badly.status, badly.next_offset) == (PullStatus.OFFSET_OVERFLOW_BADLY, 5)
    assert (badly.min_offset, badly.max_offset) == (0, 5)


def test_an_empty_queue_and_no_queue_have_their_statuses(store: MessageStore) -> None:
    assert store.pull("t", 3, queue_offset=0).status is PullStatus.NO_MESSAGE_IN_QUEUE
    assert store.pull("t", 3, queue_offset=9).status is PullStatus.NO_MESSAGE_IN_QUEUE
    assert store.pull("t", 4, queue_offset=0).status is PullStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.pull("t", -1, queue_offset=0).status is PullStatus.NO_MATCHED_LOGIC_QUEUE


def test_tags_are_compared_themselves_not_only_their_hashes(store: MessageStore) -> None:
    """``Aa`` and ``BB`` have the same Java hash; a broker sends both and its client sorts it out."""
    tags = ["Aa", "BB", "Aa", "", "C", "größe"]
    store.put_all([Message(topic="t", body=tag.encode(), tag=tag, queue_id=0) for tag in tags])
    assert bodies(store.pull("t", 0, queue_offset=0, tag_expression="Aa")) == [b"Aa", b"Aa"]
    assert bodies(store.pull("t", 0, queue_offset=0, tag_expression="BB || C")) == [b"BB", b"C"]
    assert bodies(store.pull("t", 0, queue_offset=0, tag_expression=" größe ")) == [
        "größe".encode()
    ]
    for everything in ("", "*"):
        assert store.pull("t", 0, queue_offset=0, tag_expression=everything).record_count == 6


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_a_tag_expression_without_a_tag_is_refused(store: MessageStore, expression: str) -> None:
    with pytest.raises(InvalidMessage, match="tag_expression"):
        store.pull("t", 0, queue_offset=0, tag_expression=expression)


def damage(directory: Path, put: PutResult, position: int, value: int) -> None:
    """Change one byte of a stored record on disk."""
    start = put.commit_offset - put.commit_offset % CONFIG.commit_log_file_size
    with (directory / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(put.commit_offset - start + position)
        file.write(bytes([value]))


BODY, QUEUE_ID, MAGIC, SIZE, PROPERTIES = 88, 15, 7, 3, 100


def test_a_single_message_by_offset_and_by_id(store: MessageStore, tmp_path: Path) -> None:
    puts = fill(store, 3)
    assert decode_record(store.message(puts[1].commit_offset)).body == b"1"
    assert decode_record(store.message_by_id(puts[2].message_id)).body == b"2"
    for nowhere in (puts[1].commit_offset + 1, -1, 1 << 40):
        with pytest.raises(RecordNotFound):
            store.message(nowhere)
    damage(tmp_path, puts[1], BODY, 0x7F)
    with pytest.raises(DamagedRecord) as caught:
        store.message(puts[1].commit_offset)
    assert caught.value.commit_offset == puts[1].commit_offset
    with pytest.raises(ValueError, match="hexadecimal"):
        store.message_by_id("no id")


def test_a_reader_outlives_its_writer_and_sees_the_next_one(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        fill(store, 5)
    with StoreReader.open(tmp_path) as reader:
        assert reader.max_offset("t", 0) == 5
        with MessageStore.open(tmp_path, CONFIG) as store:
            fill(store, 3)
            store.max_offset("t", 0)
            assert reader.max_offset("t", 0) == 8
        assert reader.pull("t", 0, queue_offset=5).record_count == 3


def test_slices_stay_good_after_their_files_and_the_reader_are_gone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        fill(store, 20)
        result = store.pull("t", 0, queue_offset=0)
        for path in (tmp_path / "commitlog").iterdir():
            path.unlink()
    assert bodies(result) == [b"%d" % n for n in range(20)]


def test_a_queue_of_a_deleted_topic_is_not_served_from_what_a_reader_kept(
    tmp_path: Path, store: MessageStore
) -> None:
    """Nor is it taken for that of a topic that is made under the same name."""
    fill(store, 3, tag="old")
    store.max_offset("t", 0)  # waits for dispatch
    with StoreReader.open(tmp_path) as reader:
        assert reader.pull("t", 0, queue_offset=0).record_count == 3
        store.delete_topic("t")
        for refused in (
            lambda: reader.pull("t", 0, queue_offset=0),
            lambda: reader.max_offset("t", 0),
        ):
            with pytest.raises(TopicNotFound):
                refused()
        store.create_topic("t", 1)
        fill(store, 1, tag="new")
        store.max_offset("t", 0)
        assert [
            each.properties["TAGS"] for each in decoded(reader.pull("t", 0, queue_offset=0))
        ] == ["new"]
        assert (reader.min_offset("t", 0), reader.max_offset("t", 0)) == (0, 1)


@pytest.mark.parametrize("lost", [1, 2, 3], ids=["second", "third", "last"])
@pytest.mark.parametrize("how", ["removed", "cut"])
def test_records_of_a_lost_log_file_are_named_one_by_one(
    tmp_path: Path, lost: int, how: str
) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        stored = [
            result
            for _ in range(4)
            for result in store.put_all([Message(topic="t", body=bytes(3000)) for _ in range(15)])
        ]
        store.max_offset("t", 0)
    path = sorted((tmp_path / "commitlog").iterdir())[lost]
    begin = int(path.name)
    if how == "removed":
        path.unlink()
    else:
        begin += 7000
        path.write_bytes(path.read_bytes()[:7000])
    gone = {
        each.queue_offset
        for each in stored
        if int(path.name) <= each.commit_offset < int(path.name) + CONFIG.commit_log_file_size
        and each.commit_offset + 3000 > begin
    }
    assert gone
    for max_messages in (1, 7, 100):
        with StoreReader.open(tmp_path) as reader:
            at, seen, named = 0, [], []
            while (
                result := reader.pull("t", 0, queue_offset=at, max_messages=max_messages)
            ).status is not (PullStatus.OFFSET_OVERFLOW_ONE):
                assert result.status is PullStatus.FOUND
                assert result.record_count + len(result.damaged) <= max_messages
                seen += result.queue_offsets
                named += [each.queue_offset for each in result.damaged]
                assert result.next_offset > at
                at = result.next_offset
        assert set(named) == gone and len(named) == len(gone)
        assert sorted(seen + named) == list(range(60))


def test_after_a_reboot_only_what_was_durable_is_sure(tmp_path: Path) -> None:
    """Live positions of another boot may name bytes that the power cut took."""
    with MessageStore.open(tmp_path / "live", CONFIG) as store:
        store.create_topic("t", 1)
        fill(store, 10)
        store.max_offset("t", 0)
        shutil.copytree(tmp_path / "live", tmp_path / "cut", ignore=PASSING)
    checkpoint = tmp_path / "cut" / "checkpoint"
    page = bytearray(checkpoint.read_bytes())
    page[512 + 16 : 512 + 32] = bytes(16)  # the boot that the live positions are of
    checkpoint.write_bytes(page)
    with StoreReader.open(tmp_path / "cut") as reader:
        positions = reader.positions
        assert positions is not None
        durable = positions.durable.load()
        assert durable.trusted
        assert reader.visible_offset == durable.dispatched_offset
        result = reader.pull("t", 0, queue_offset=0)
        assert all(r.commit_offset < durable.dispatched_offset for r in decoded(result))
        with MessageStore.open(tmp_path / "cut", CONFIG) as store:
            assert store.max_offset("t", 0) == 10
            assert reader.max_offset("t", 0) == 10


def test_a_broker_that_is_running_is_followed_without_its_word(tmp_path: Path) -> None:
    """A broker publishes nothing, so whatever is in the files is served, new files included."""
    store = golden_copy("basic", tmp_path)
    later = sorted((store / "commitlog").iterdir())[3:]
    for path in later:
        path.rename(tmp_path / path.name)
    with StoreReader.open(store) as reader:
        assert reader.max_offset("audit_log-1", 0) == 1050
        early = reader.pull("audit_log-1", 0, queue_offset=0, max_messages=5000)
        assert 0 < early.record_count < 1050
        for path in later:
            (tmp_path / path.name).rename(path)
        assert reader.pull("audit_log-1", 0, queue_offset=0, max_messages=5000).record_count == 1050


def test_times_and_offsets_of_unknown_queues_are_errors(store: MessageStore) -> None:
    with pytest.raises(QueueNotFound):
        store.max_offset("t", 9)
    with pytest.raises(TopicNotFound):
        store.min_offset("nope", 0)


def test_a_closed_reader_says_so(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG):
        pass
    reader = StoreReader.open(tmp_path)
    reader.close()
    reader.close()
    with pytest.raises(StoreClosed):
        reader.pull("t", 0, queue_offset=0)


def test_a_reader_wants_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="does not exist"):
        StoreReader.open(tmp_path / "missing")
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAStore):
        StoreReader.open(tmp_path)


WRITER = """
    import sys
    from storage import MessageStore, StoreConfig
    from storage.message import Message
    config = StoreConfig(commit_log_file_size=1 << 16, consume_queue_file_size=400,
                         index_slot_count=50, index_entry_count=200)
    with MessageStore.open(sys.argv[1], config) as store:
        store.create_topic("t", 2)
        print("open", flush=True)
        for n in range(1500):
            if n == 700:
                sys.stdin.readline()
            store.put(Message(topic="t", body=b"%d" % n * 20, queue_id=n % 2))
        print("done", flush=True)
        sys.stdin.readline()
"""


def test_a_reader_follows_a_writer_in_another_process(tmp_path: Path) -> None:
    """Every record is seen once, whole and in order, while log, queue and index files roll."""
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert writer.stdout is not None and writer.stdin is not None
        assert writer.stdout.readline() == "open\n"
        seen: list[list[bytes]] = [[], []]
        waited = 0
        with StoreReader.open(tmp_path) as reader:
            while sum(map(len, seen)) < 1500:
                positions = reader.positions
                assert positions is not None
                word = positions.writer_word
                before = sum(map(len, seen))
                for queue_id in (0, 1):
                    result = reader.pull("t", queue_id, queue_offset=len(seen[queue_id]))
                    assert not result.damaged
                    seen[queue_id] += bodies(result)
                    assert result.next_offset == len(seen[queue_id])
                if sum(map(len, seen)) == before:
                    if not waited:
                        writer.stdin.write("\n")
                        writer.stdin.flush()
                    waited += 1
                    positions.wait_for_writer(word, 5.0)
                assert writer.poll() is None
        for queue_id in (0, 1):
            assert seen[queue_id] == [b"%d" % n * 20 for n in range(queue_id, 1500, 2)]
        assert waited
    finally:
        writer.communicate("\n", timeout=30)
    assert writer.returncode == 0
