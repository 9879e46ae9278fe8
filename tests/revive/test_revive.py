"""What a broker had handed out: messages that nobody acknowledged come again, at the end of their lease and once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_store import PASSING, note_as_a_broker_does, records_on_disk
from flips import flip
from golden import golden_copy
from hand_store import NOW_MS, TimerStore

from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.properties import CRC32
from storage.format.record import Record, decode_record
from storage.kernels.columns import CHECK_ALL
from storage.message import Message
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.testing import SteppedWorkers
from storage.view.log.walk import RecordRun, walk_log
from storage.writer import StoreWriter


def undamaged_records(directory: Path) -> list[Record]:
    files = ReadOnlyMappedFileQueue(FileSystem(), directory / "commitlog", file_size=0)
    return [
        decode_record(step.data, int(position))
        for step in walk_log(files, files.first_offset, files.end_offset, checks=CHECK_ALL)
        if isinstance(step, RecordRun)
        for position in step.rows[:, 0]
    ]


REVIVE = "rmq_sys_REVIVE_LOG_test"
RETRY = "%RETRY%billing_later"
LEASE_MS = 10_000
NAMES = {"bn": "broker-a", "c": "billing", "pt": NOW_MS, "q": 0, "t": "later"}


class PoppedStore(TimerStore):
    """A store as a broker leaves it, with ten messages in queue 0 of ``later``."""

    def __init__(self, directory: Path, **options: Any) -> None:
        is_new = not directory.exists()
        super().__init__(directory, **options)
        if is_new:
            for name, queues in ((REVIVE, 2), ("%RETRY%old_later", 1)):
                self.writer.create_topic(name, queues)
            self.writer.put(
                [
                    Message("later", b"%d" % number, queue_id=0, unique_key=f"KEY{number}", tag="t")
                    for number in range(10)
                ]
            )
            self.close()
            super().__init__(directory, **options)

    def tell(self, tag: str, queue_id: int = 0, due_ms: int = 0, **fields: Any) -> None:
        """Append what a broker writes of a pop or an acknowledgement, for a time or at once."""
        body = json.dumps({**NAMES, **fields}).encode()
        at = {"deliver_at_ms": due_ms} if due_ms else {}
        self.writer.put([Message(REVIVE, body, queue_id=queue_id, tag=tag, **at)])

    def pop(self, start: int, count: int, queue_id: int = 0, **fields: Any) -> None:
        end_ms = fields.get("pt", NOW_MS) + LEASE_MS
        distances = list(range(count))
        self.tell(
            "ck", queue_id, end_ms - 1_000,
            **{"bm": 0, "d": distances, "it": LEASE_MS, "n": count, "so": start, **fields},
        )  # fmt: skip

    def ack(self, start: int, *offsets: int, queue_id: int = 0, **fields: Any) -> None:
        for offset in offsets:
            self.tell("ack", queue_id, NOW_MS + LEASE_MS, ao=offset, so=start, **fields)

    def again(self, topic: str = RETRY) -> list[bytes]:
        return [each.body for each in records_on_disk(self.directory) if each.topic == topic]


def test_what_is_not_acknowledged_comes_again_when_its_lease_ends(tmp_path: Path) -> None:
    store = PoppedStore(tmp_path / "store")
    store.pop(0, 4)
    store.ack(0, 0, 2)
    store.pop(4, 3, queue_id=1)
    store.tell("bAck", 1, NOW_MS + LEASE_MS, aol=[4, 6], so=4)
    store.pass_to(NOW_MS + LEASE_MS - 1)
    assert store.again() == []
    store.pass_to(NOW_MS + LEASE_MS)
    assert sorted(store.again()) == [b"1", b"3", b"5"]
    copy = next(each for each in records_on_disk(store.directory) if each.topic == RETRY)
    first = next(each for each in records_on_disk(store.directory) if each.body == copy.body)
    assert (copy.queue_id, copy.reconsume_times, copy.flag) == (0, 1, first.flag)
    assert copy.born_timestamp_ms == first.born_timestamp_ms
    added = {"1ST_POP_TIME": str(NOW_MS), CRC32: copy.properties[CRC32]}
    assert copy.properties == {**first.properties, **added}
    store.close()


def test_what_came_again_comes_once_more_from_its_retry_topic(tmp_path: Path) -> None:
    store = PoppedStore(tmp_path / "store")
    store.pop(0, 1)
    store.pass_to(NOW_MS + LEASE_MS)
    store.pop(0, 1, t=RETRY, pt=NOW_MS + LEASE_MS)
    store.pass_to(NOW_MS + 2 * LEASE_MS)
    copies = [each for each in records_on_disk(store.directory) if each.topic == RETRY]
    assert [each.reconsume_times for each in copies] == [1, 2]
    assert {each.properties["1ST_POP_TIME"] for each in copies} == {str(NOW_MS)}
    store.close()


def test_a_broker_finds_how_far_checkpoints_are_settled(tmp_path: Path) -> None:
    store = PoppedStore(tmp_path / "store")
    store.pop(0, 1)
    store.pop(1, 1, it=3 * LEASE_MS)
    store.pop(2, 1, queue_id=1)
    store.pass_to(NOW_MS + LEASE_MS)
    store.close()
    offsets = ConsumerOffsets(FileSystem(), store.directory / "config", SystemClock())
    found = offsets.fetch_group("CID_RMQ_SYS_REVIVE_GROUP")
    # In queue 0 the first checkpoint is settled; in queue 1 the one there is, and its acknowledgement is read.
    assert found == {REVIVE: {0: 0, 1: 1}}


def test_what_a_broker_has_settled_is_left_alone(tmp_path: Path) -> None:
    store = PoppedStore(tmp_path / "store")
    store.pop(0, 1)
    store.pass_to(NOW_MS + LEASE_MS - 1_000)
    store.close()
    offsets = ConsumerOffsets(FileSystem(), store.directory / "config", SystemClock())
    offsets.commit("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0, 0)
    offsets.close()
    copy = tmp_path / "copy"
    shutil.copytree(store.directory, copy, ignore=PASSING)
    note_as_a_broker_does(store.directory)
    for _ in range(2):  # and it is kept: at the second start no broker ran since
        store = PoppedStore(tmp_path / "store", now_ms=NOW_MS + LEASE_MS)
        store.settle()
        assert store.again() == []
        store.close()
    store = PoppedStore(copy, now_ms=NOW_MS + LEASE_MS)  # no broker ran: somebody else wrote it
    store.settle()
    assert store.again() == [b"0"]
    store.close()


def test_groups_get_their_own_copies_and_each_message_once(tmp_path: Path) -> None:
    store = PoppedStore(tmp_path / "store")
    store.pop(0, 3)
    store.pop(0, 3, c="other", queue_id=1)
    store.pop(1, 1, pt=NOW_MS - 500, queue_id=1)  # handed out twice to the same group
    store.pass_to(NOW_MS + LEASE_MS)
    assert Counter(store.again()) == Counter([b"0", b"1", b"2"])
    assert Counter(store.again("%RETRY%other_later")) == Counter([b"0", b"1", b"2"])
    store.close()


def test_a_copy_is_what_a_broker_makes(tmp_path: Path) -> None:
    """The golden store has a broker's own copies; without them and its progress we make the same ones."""
    directory = golden_copy("features", tmp_path)
    popped_retries = "%RETRY%poppers_popped"
    before = [each for each in records_on_disk(directory) if each.topic == popped_retries]
    offsets = ConsumerOffsets(FileSystem(), directory / "config", SystemClock())
    offsets.forget("CID_RMQ_SYS_REVIVE_GROUP")
    offsets.close()
    workers = SteppedWorkers()
    with StoreWriter.open(
        directory, StoreConfig(append_property_crc=False), workers=workers
    ) as writer:
        writer.delete_topic(popped_retries)
        for _ in range(4):
            workers.settle()
    after = [each for each in records_on_disk(directory) if each.topic == popped_retries]
    made = after[len(before) :]

    def fields(copies: list[Record]) -> list[tuple[object, ...]]:
        return sorted(
            (
                copy.body, copy.queue_id, copy.flag, copy.sys_flag, copy.born_timestamp_ms,
                copy.reconsume_times, copy.prepared_transaction_offset,
                sorted(copy.properties.items()),
            )
            for copy in copies
        )  # fmt: skip

    assert len(before) == len(made) == 3
    assert fields(made) == fields(before)


def test_nothing_comes_again_of_a_topic_that_was_made_again_since(tmp_path: Path) -> None:
    """Other messages are at the same queue offsets; the group gets them as it gets new ones."""
    store = PoppedStore(tmp_path / "store")
    store.pop(0, 3)
    store.pass_to(NOW_MS + 1_000)
    store.writer.delete_topic("later")
    store.writer.create_topic("later", 1)
    store.writer.put([Message("later", b"new %d" % n, queue_id=0) for n in range(5)])
    store.pop(3, 1, pt=NOW_MS + 2_000)
    store.pass_to(NOW_MS + 2 * LEASE_MS)
    assert store.again() == [b"new 3"]
    store.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"[" * 10_000,
        b"{}",
        b"\xff",
        b'{"t": "later"}',
        b'{"t":1,"c":2,"q":"x","so":0,"pt":0,"it":1}',
    ],
)
def test_what_is_no_checkpoint_is_passed_over(tmp_path: Path, body: bytes) -> None:
    store = PoppedStore(tmp_path / "store")
    for tag in ("ck", "ack", "bAck", "other"):
        store.writer.put([Message(REVIVE, body or b" ", queue_id=0, tag=tag)])
    store.pop(3, 1)
    store.pass_to(NOW_MS + LEASE_MS)
    assert store.again() == [b"3"]
    store.close()


def test_a_damaged_message_is_named_and_the_others_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = PoppedStore(tmp_path / "store")
    store.pop(0, 3)
    store.settle()
    [hit] = [
        each for each in records_on_disk(store.directory)
        if each.topic == "later" and each.body == b"1"
    ]  # fmt: skip
    store.close()
    log = store.directory / "commitlog" / f"{0:020d}"
    flip(log, hit.commit_offset + 88)  # its body
    store = PoppedStore(store.directory, now_ms=NOW_MS + LEASE_MS)
    store.settle()
    again = Counter(record.body for record in undamaged_records(store.directory))
    assert (again[b"0"], again[b"2"]) == (2, 2)
    assert "later queue 0, queue offset 1, does not come again: the body" in caplog.text
    store.close()
