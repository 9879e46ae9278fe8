"""Requests of producers through kills and power cuts at any step: repeated until answered, each is in the log once."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from cut_machine import Machine
from engine_store import append, record, records_on_disk, small_config

from storage.engine import producers
from storage.errors import InvalidMessage, OutcomeForgotten, StoreBusy
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.record import decode_record
from storage.message import BatchResult, Message, ProducerSequence, PutResult
from storage.producers import loading, windows
from storage.producers.loading import STATE
from storage.testing import ProcessStopped, SteppedClock
from storage.view.log.walk import RecordRun, walk_log
from storage.writer import StoreWriter

CUTS = int(os.environ.get("CUTS", "24"))
SHARES = 4
REQUESTS = 14
ID = 77


def bodies_in_log(store: Path) -> Counter[bytes]:
    """Count the bodies of the intact records of the topic."""
    files = ReadOnlyMappedFileQueue(FileSystem(), store / "commitlog", file_size=0)
    found: Counter[bytes] = Counter()
    for step in walk_log(files, files.first_offset, files.end_offset):
        if isinstance(step, RecordRun):
            records = [decode_record(step.data, int(position)) for position in step.rows[:, 0]]
            found.update(each.body for each in records if each.topic == "t")
    return found


class RepeatingProducer:
    """Sends requests, repeats those that were not answered, and now and then one that was."""

    def __init__(self, machine: Machine, dice: random.Random, *, sync: bool) -> None:
        self.machine, self.dice, self.sync = machine, dice, sync
        self.sent: dict[int, float] = {}  # when each was first sent
        self.answered: dict[int, object] = {}
        self.durable: set[int] = set()
        self.unsynced: set[int] = (
            set()
        )  # answered by the present writer: what an earlier one left may be lost
        self.forgotten: set[int] = set()

    def bodies(self, sequence: int) -> list[bytes]:
        rolled = random.Random(sequence)
        return [
            b"%d-%d" % (sequence, n) + bytes(rolled.choice((0, 40, 900)))
            for n in range(rolled.choice((1, 2, 3, 9)))
        ]

    def work(self, writer: StoreWriter) -> None:
        self.unsynced.clear()
        if not any(topic.name == "t" for topic in writer.list_topics()):
            writer.create_topic("t", 2)
        for sequence in sorted(self.sent):
            if sequence not in self.answered and sequence not in self.forgotten:
                self.send(writer, sequence)
        while len(self.sent) < REQUESTS:
            self.send(writer, len(self.sent) + 1)
            if self.dice.random() < 0.3:
                self.send(writer, self.dice.randint(1, len(self.sent)))
            for name in ("flush", "dispatch", "checkpoint", "producers"):
                if self.dice.random() < 0.4:
                    self.machine.workers.step(name)
            self.machine.clock.advance(self.dice.choice((0.1, 3)))

    def send(self, writer: StoreWriter, sequence: int) -> None:
        now = self.machine.clock.monotonic()
        is_first = sequence not in self.sent
        self.sent.setdefault(sequence, now)
        age_ms = 0 if is_first else int((now - self.sent[sequence]) * 1_000) + 1
        producer = ProducerSequence(ID, sequence, age_ms)
        bodies = self.bodies(sequence)
        result: BatchResult | list[PutResult]
        for _ in range(10):
            try:
                if sequence % 2:
                    batch = b"".join(record("t", n % 2, body) for n, body in enumerate(bodies))
                    result = writer.append_batch(batch, producer=producer)
                else:
                    result = writer.put([Message("t", body) for body in bodies], producer=producer)
                break
            except StoreBusy:
                self.machine.workers.settle()
            except OutcomeForgotten:
                assert not self.sync, "in sync mode there is nothing that nobody knows"
                self.forgotten.add(sequence)
                return
        else:
            raise AssertionError("busy for ever")
        before = self.answered.get(sequence)
        places = self.places(result)
        if before is not None and sequence in self.durable:
            assert places == before, "another answer than the first"
        if self.sync:
            self.machine.workers.step("flush")
            self.durable.add(sequence)
        self.answered[sequence] = places
        self.unsynced.add(sequence)
        if not self.sync and self.dice.random() < 0.3:
            self.machine.workers.step("flush")
            self.durable.update(self.unsynced)
            self.unsynced.clear()

    @staticmethod
    def places(result: BatchResult | list[PutResult]) -> object:
        if isinstance(result, BatchResult):
            return result._replace(repeated=False)
        return [each._replace(repeated=False) for each in result]


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_stop_at_any_step_leaves_each_request_in_the_log_once(
    tmp_path: Path, share: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "SAVE_INTERVAL_S", 0.2)
    dice = random.Random(share)
    stops = forgotten = sent = 0
    for number in range(CUTS // SHARES // 3):
        seed = f"{mode} {share} {number}"
        machine = Machine(tmp_path / str(number), seed=number)
        client = RepeatingProducer(machine, dice, sync=mode == "sync")
        for _ in range(3):
            kills = dice.random() < 0.5
            machine.disk.stop_after(dice.randint(1, 120), kills=kills)
            try:
                writer = machine.open(flush_mode=mode)
                client.work(writer)
                if dice.random() < 0.5:
                    writer.close()
            except ProcessStopped:
                stops += 1
            if machine.disk.was_killed if machine.disk.successor is not None else kills:
                machine.kill()
            else:
                machine.cut(dice.choice(("", "none", "all")))
            machine.clock.advance(0.5)
        writer = machine.open(flush_mode=mode)
        client.work(writer)
        writer.close()
        found = bodies_in_log(machine.directory)
        assert {body: count for body, count in found.items() if count > 1} == {}, seed
        if mode == "sync":
            expected = {body for sequence in client.sent for body in client.bodies(sequence)}
            assert set(found) == expected, seed
            assert not client.forgotten
        lost = {s for s in client.durable if not set(client.bodies(s)) <= set(found)}
        assert not lost, seed
        forgotten += len(client.forgotten)
        sent += len(client.sent)
        machine.disk.close()
    assert stops
    assert forgotten * 4 < sent, "most of the repeats are answered"


def opened(root: Path) -> tuple[Machine, StoreWriter]:
    """A store of the topic, with what its creation needs on the disk."""
    machine = Machine(root)
    writer = machine.open(flush_mode="sync")
    writer.create_topic("t", 1)
    for name in ("flush", "dispatch", "checkpoint"):
        machine.workers.step(name)
    return machine, writer


def torn(machine: Machine, kept: int) -> None:
    """End the process in the middle of a copy: of the last request the first records are in the file.

    In sync mode nobody has been told of them, as in the middle of a copy.
    """
    machine.kill()
    [path] = (machine.directory / "commitlog").glob("0*0")
    data = bytearray(path.read_bytes())
    at = _positions(bytes(data))
    end = at[len(at) - len(BODIES) + kept]
    data[end:] = bytes(len(data) - end)
    path.write_bytes(data)


def _positions(data: bytes) -> list[int]:
    found, at = [], 0
    while (size := int.from_bytes(data[at : at + 4], "big")) > 0:
        found.append(at)
        at += size
    return found


BODIES = [b"a", b"bb" * 100, b"c", b"d" * 300]


def send(writer: StoreWriter, as_batch: bool, age_ms: int) -> list[tuple[int, int]]:
    """Send the request; return queue and queue offset of each record."""
    producer = ProducerSequence(ID, 5, age_ms)
    if not as_batch:
        results = writer.put([Message("t", body) for body in BODIES], producer=producer)
        assert all(each.repeated == bool(age_ms) for each in results)
        return [(each.queue_id, each.queue_offset) for each in results]
    batch = b"".join(record("t", 0, body) for body in BODIES)
    result = writer.append_batch(batch, producer=producer)
    assert (result.record_count, result.repeated) == (len(BODIES), bool(age_ms))
    return [
        (each.queue_id, each.first_queue_offset + n)
        for each in result.ranges
        for n in range(each.count)
    ]


@pytest.mark.parametrize("as_batch", [True, False])
@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.parametrize("between", ["nothing", "others", "others and a kill", "the rest torn"])
def test_a_request_that_was_cut_short_is_completed_when_it_is_repeated(
    tmp_path: Path, as_batch: bool, kept: int, between: str
) -> None:
    machine, writer = opened(tmp_path)
    writer.put([Message("t", b"before")])
    send(writer, as_batch, 0)
    torn(machine, kept)
    writer = machine.open(flush_mode="sync")
    others = 0
    if between.startswith("others"):
        others = 30
        for _ in range(others):
            writer.put([Message("t", b"other")])
    if between == "others and a kill":
        machine.kill()
        writer = machine.open(flush_mode="sync")
    if between == "the rest torn" and kept < 3:
        send(writer, as_batch, 1_000)
        torn(machine, 3)
        writer = machine.open(flush_mode="sync")
    places = send(writer, as_batch, 1_000)
    assert places == send(writer, as_batch, 2_000)
    rest = kept if between != "the rest torn" else max(kept, 3)
    assert places == [(0, 1 + n + (others if n >= rest else 0)) for n in range(len(BODIES))]
    writer.close()
    found = bodies_in_log(machine.directory)
    assert [found[body] for body in (b"before", *BODIES, b"other")] == [1, 1, 1, 1, 1, others]


def put_back(journal: Path, files: dict[Path, bytes]) -> None:
    """Let the journal have these files and no others."""
    for path in journal.iterdir():
        path.unlink()
    for path, data in files.items():
        (journal / path.name).write_bytes(data)


@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_without_what_was_saved_the_log_is_read(tmp_path: Path, damage: str) -> None:
    clock = SteppedClock()
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        writer.create_topic("t", 1)
        [stored] = writer.put([Message("t", b"a")], producer=ProducerSequence(ID, 1))
    (path,) = (tmp_path / "s" / "journal").iterdir()
    data = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        [answered] = writer.put([Message("t", b"a")], producer=ProducerSequence(ID, 1, 5_000))
        assert answered == stored._replace(repeated=True)


@pytest.mark.parametrize("saved", ["nothing", "too long ago"])
def test_what_was_sent_before_the_log_that_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: str
) -> None:
    """The tail of the log does not reach as far back as the request, nor is it read from what was saved on."""
    monkeypatch.setattr(loading, "TAIL_BYTES", 1 << 16)
    monkeypatch.setattr(loading, "READ_MAX", 1 << 17)
    clock = SteppedClock()
    journal = tmp_path / "s" / "journal"
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        writer.create_topic("t", 1)
        [kept] = writer.put([Message("t", b"kept")], producer=ProducerSequence(ID, 1))
    old = {path: path.read_bytes() for path in journal.iterdir()}
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        writer.put([Message("t", b"a")], producer=ProducerSequence(ID, 2))
        for _ in range(5):
            clock.advance(600)
            append(writer, record("t", 0, bytes(50_000)))
        end = writer.appended_offset
    put_back(journal, {} if saved == "nothing" else old)
    clock.advance(600)
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        assert end - writer._producers._saved_offset <= loading.TAIL_BYTES
        with pytest.raises(OutcomeForgotten):
            writer.put([Message("t", b"a")], producer=ProducerSequence(ID, 2, 3_600_000))
        repeat = ProducerSequence(ID, 1, 3_600_000)
        if saved == "nothing":
            with pytest.raises(OutcomeForgotten):
                writer.put([Message("t", b"kept")], producer=repeat)
        else:
            [answered] = writer.put([Message("t", b"kept")], producer=repeat)
            assert answered == kept._replace(repeated=True)
        assert writer.appended_offset == end
        age_ms = 600_000 - windows.WAY_MS - 1
        writer.put([Message("t", b"b")], producer=ProducerSequence(ID, 3, age_ms))


@pytest.mark.parametrize("as_batch", [True, False])
@pytest.mark.parametrize("foreign", ["others", "the same size", "another request"])
def test_a_torn_request_with_records_of_others_behind_it_is_refused(
    tmp_path: Path, as_batch: bool, foreign: str
) -> None:
    """A broker or an older writer has appended, which save nothing of producers."""
    machine, writer = opened(tmp_path)
    send(writer, as_batch, 0)
    end = writer.appended_offset
    torn(machine, 2)
    old = {path: path.read_bytes() for path in machine.directory.glob("journal/*")}
    writer = machine.open(flush_mode="sync")
    left = end - writer.appended_offset
    if foreign == "another request":
        writer.put([Message("t", b"x")], producer=ProducerSequence(ID, 9))
        writer.put([Message("t", b"x" * left)], producer=ProducerSequence(ID, 10))
    elif foreign == "others":
        for _ in range(9):
            writer.put([Message("t", b"other")])
    else:
        empty = len(record("t", 0, b""))
        writer.append_batch(record("t", 0, bytes(left - empty - 16)))  # with the property CRC
    machine.workers.step("flush")
    machine.kill()
    put_back(machine.directory / "journal", old)
    writer = machine.open(flush_mode="sync")
    end = writer.appended_offset
    for age_ms in (0, 1_000):
        with pytest.raises((OutcomeForgotten, InvalidMessage)):
            send(writer, as_batch, age_ms)
    assert writer.appended_offset == end
    if foreign == "another request":
        [known] = writer.put([Message("t", b"x")], producer=ProducerSequence(ID, 9, 1))
        assert known.repeated
    writer.close()


def test_what_cannot_be_saved_is_saved_later_and_the_store_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, writer = opened(tmp_path)
    writer.put([Message("t", b"a")], producer=ProducerSequence(ID, 1))
    machine.workers.step("flush")
    machine.clock.advance(producers.SAVE_INTERVAL_S)
    machine.workers.step("producers")

    def fail(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(writer._engine.states, "put", fail)
        with pytest.raises(StoreBusy):
            writer._producers.step()
    assert "requests of producers are not saved" in writer.status().problem
    assert writer.writable
    machine.workers.step("producers")
    assert writer.status().problem == ""
    assert writer._engine.states.get(STATE)
    writer.close()


@pytest.mark.parametrize("left_count", [0, 1, 2, 3])
@pytest.mark.parametrize("is_repeated_at_once", [True, False])
def test_a_request_that_was_saved_whole_and_lost_its_end_is_completed(
    tmp_path: Path, left_count: int, is_repeated_at_once: bool
) -> None:
    """The log was cut short after the windows had been saved, as a copy of the directory can be."""
    store = tmp_path / "s"
    messages = [Message("t", b"%d" % number) for number in range(3)]
    with StoreWriter.open(store, small_config(), clock=SteppedClock()) as writer:
        writer.create_topic("t", 1)
        writer.put([Message("t", b"before")], producer=ProducerSequence(ID, 1))
        writer.put(messages, producer=ProducerSequence(ID, 2))
    records = records_on_disk(store)
    log = store / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    end = records[left_count].commit_offset + records[left_count].total_size
    log.write_bytes(data[:end].ljust(len(data), b"\0"))
    (store / "checkpoint").unlink()
    if not is_repeated_at_once:
        with StoreWriter.open(store, small_config(), clock=SteppedClock()) as writer:
            writer.put([Message("t", b"between")], producer=ProducerSequence(ID, 3))
    with StoreWriter.open(store, small_config(), clock=SteppedClock()) as writer:
        writer.put(messages, producer=ProducerSequence(ID, 2, 1_000))
        again = writer.put(messages, producer=ProducerSequence(ID, 2, 1_000))
        assert all(each.repeated for each in again)
    found = sorted(each.body for each in records_on_disk(store))
    between = [] if is_repeated_at_once else [b"between"]
    assert found == sorted([b"before", b"0", b"1", b"2", *between])


@pytest.mark.parametrize("as_batch", [True, False])
def test_of_a_torn_request_whose_rest_is_refused_nobody_knows(
    tmp_path: Path, as_batch: bool
) -> None:
    machine, writer = opened(tmp_path)
    send(writer, as_batch, 0)
    torn(machine, 2)
    writer = machine.open(flush_mode="sync")
    writer.delete_topic("t")
    end = writer.appended_offset
    with pytest.raises(OutcomeForgotten, match="first 2 records are stored"):
        send(writer, as_batch, 1_000)
    assert writer.appended_offset == end
    writer.close()
