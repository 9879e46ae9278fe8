"""A request of a producer is stored once, and answered each time with what the first was answered."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from engine_store import record, records_on_disk, small_config
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidMessage, OutcomeForgotten, StoreBusy, TopicNotFound
from storage.format.producer_sequence import SEQUENCE_PROPERTY_SIZE, encode_sequence
from storage.format.producer_windows import decode_windows
from storage.format.properties import PRODUCER_SEQUENCE
from storage.kernels.message_slices import (
    BODY,
    HEAD_SIZE,
    PRODUCER_ID,
    SEQUENCE,
    SIZES,
    TOPIC,
    UNIQUE_KEY,
)
from storage.message import Message, ProducerSequence
from storage.producers import windows
from storage.testing import SteppedClock, SteppedWorkers
from storage.writer import StoreWriter

ID = 0x7ABC_DEF0_1234_5678


def first(sequence: int, producer_id: int = ID) -> ProducerSequence:
    return ProducerSequence(producer_id, sequence)


def again(sequence: int, producer_id: int = ID, age_ms: int = 1_000) -> ProducerSequence:
    return ProducerSequence(producer_id, sequence, age_ms)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def writer(tmp_path: Path, clock: SteppedClock) -> Iterator[StoreWriter]:
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        writer.create_topic("t", 4)
        yield writer


@pytest.mark.parametrize("repeat", [first(7), again(7)])
def test_a_message_that_is_sent_again_is_stored_once_and_answered_the_same(
    writer: StoreWriter, repeat: ProducerSequence
) -> None:
    message = Message("t", b"once", tag="a", keys=("k",), properties={"p": "v"})
    assert writer.is_new(first(7))
    [stored] = writer.put([message], producer=first(7))
    assert not writer.is_new(repeat)
    end = writer.appended_offset
    [answered] = writer.put([message], producer=repeat)
    assert not stored.repeated
    assert answered == stored._replace(repeated=True)
    assert writer.appended_offset == end
    [other] = writer.put([message], producer=first(8))
    assert other.commit_offset == end


@pytest.mark.parametrize("queues", [1, 4])
def test_a_batch_that_is_sent_again_is_stored_once_and_answered_the_same(
    writer: StoreWriter, queues: int
) -> None:
    records = b"".join(record("t", n % queues, b"%d" % n) for n in range(40))
    writer.append_batch(records)
    stored = writer.append_batch(records, producer=first(1))
    end = writer.appended_offset
    assert writer.append_batch(records, producer=again(1)) == stored._replace(repeated=True)
    for repeat in (again(1), first(1)):
        few = writer.append_batch_of_few(records, queues_max=9, producer=repeat)
        assert few is None, "who must not wait does not read what is stored"
    assert writer.appended_offset == end == stored.end_commit_offset


def test_with_the_pool_a_request_is_answered_before_and_after_its_bytes_are_in_the_file(
    tmp_path: Path,
) -> None:
    """And after a start."""
    (tmp_path / "shm").mkdir()
    pooled = small_config(
        transient_pool=True, transient_pool_size=2, transient_pool_directory=str(tmp_path / "shm")
    )
    workers = SteppedWorkers()
    records = b"".join(record("t", n % 2, b"%d" % n) for n in range(9))
    with StoreWriter.open(tmp_path / "s", pooled, workers=workers) as writer:
        writer.create_topic("t", 2)
        [stored] = writer.put([Message("t", b"once")], producer=first(1))
        batch = writer.append_batch(records, producer=first(2))
        answer = [stored._replace(repeated=True)]
        assert writer.put([Message("t", b"once")], producer=again(1)) == answer
        workers.step("commit")
        writer._engine._pool.give_memory_back()
        assert writer.put([Message("t", b"once")], producer=again(1)) == answer
    with StoreWriter.open(tmp_path / "s", pooled) as writer:
        end = writer.appended_offset
        for _ in range(2):
            assert writer.put([Message("t", b"once")], producer=again(1, age_ms=100)) == answer
            assert writer.append_batch(records, producer=again(2)) == batch._replace(repeated=True)
        assert writer.appended_offset == end


def test_the_first_record_alone_says_whose_it_is_before_its_own_properties(
    tmp_path: Path, clock: SteppedClock
) -> None:
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        writer.create_topic("t", 2)
        records = b"".join(
            record("t", n % 2, b"b" * n, tag="x", keys="k", properties={"UNIQ_KEY": f"u{n}"})
            for n in range(5)
        )
        plain = writer.append_batch(records)
        stored = writer.append_batch(records, producer=first(3))
        results = writer.put([Message("t", b"1"), Message("t", b"2")], producer=first(4))
    begin, size = stored.commit_offset, stored.end_commit_offset - stored.commit_offset
    assert size == plain.end_commit_offset - plain.commit_offset + SEQUENCE_PROPERTY_SIZE
    on_disk = records_on_disk(tmp_path / "s")
    assert [r.commit_offset for r in on_disk[10:]] == [r.commit_offset for r in results]
    assert [r.properties.get("UNIQ_KEY") for r in on_disk[10:]] == [r.unique_key for r in results]
    told = [r.properties.get(PRODUCER_SEQUENCE) for r in on_disk]
    value = encode_sequence(ID, 3, size, begin).decode().split("\x01")[1][:-1]
    assert told[:10] == [None] * 5 + [value] + [None] * 4
    assert told[10] is not None and told[11] is None
    for before, after in zip(on_disk[:5], on_disk[5:10], strict=True):
        assert (before.body, before.topic, before.queue_id) == (
            after.body, after.topic, after.queue_id,
        )  # fmt: skip
        kept = [
            {k: v for k, v in each.properties.items() if k not in ("__CRC32#", PRODUCER_SEQUENCE)}
            for each in (before, after)
        ]
        assert kept[0] == kept[1]


def test_a_plain_message_in_a_buffer_is_stored_once(writer: StoreWriter) -> None:
    message = writer.message_slices(HEAD_SIZE + 64)

    def put(producer_id: int, sequence: int) -> int | None:
        message.fields[:] = 0
        message.view[HEAD_SIZE : HEAD_SIZE + 5] = b"thalf"
        message.fields[TOPIC], message.fields[SIZES + TOPIC] = HEAD_SIZE, 1
        message.fields[BODY], message.fields[SIZES + BODY] = HEAD_SIZE + 1, 4
        message.fields[PRODUCER_ID], message.fields[SEQUENCE] = producer_id, sequence
        return writer.put_slices(message, born_host="127.0.0.1:1")

    begin = writer.appended_offset
    end = put(ID, 1)
    assert end is not None
    begin_of_key = message.fields.item(UNIQUE_KEY)
    unique_key = message.view[begin_of_key : begin_of_key + 32].tobytes().decode()
    assert put(ID, 1) is None, "left to put, which looks it up"
    [answered] = writer.put([Message("t", b"half")], producer=first(1))
    assert (answered.commit_offset, answered.repeated, answered.queue_id) == (begin, True, 0)
    assert answered.unique_key == unique_key
    assert writer.appended_offset == end


def test_other_messages_under_the_same_sequence_are_refused(writer: StoreWriter) -> None:
    writer.put([Message("t", b"a"), Message("t", b"b")], producer=first(1))
    writer.append_batch(record("t", 0, b"c"), producer=first(2))
    end = writer.appended_offset
    for bodies in ([b"a"], [b"a", b"x"], [b"a", b"b", b"c"]):
        with pytest.raises(InvalidMessage, match="other messages"):
            writer.put([Message("t", body) for body in bodies], producer=again(1))
    for records in (record("t", 0, b"d"), record("t", 0, b"c") * 2):
        with pytest.raises(InvalidMessage, match="other messages"):
            writer.append_batch(records, producer=again(2))
    assert writer.appended_offset == end


@pytest.mark.parametrize(
    "producer", [(0, 1), (1, 0), (-1, 1), (1 << 63, 1), (1, 1 << 32), (1, 1, -1)]
)
def test_numbers_that_are_no_sequence_are_refused(
    writer: StoreWriter, producer: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidMessage, match="producer"):
        writer.put([Message("t", b"a")], producer=ProducerSequence(*producer))
    with pytest.raises(InvalidMessage, match="producer"):
        writer.append_batch(record(), producer=ProducerSequence(*producer))


def test_where_there_is_no_room_for_it_a_repeat_is_refused(writer: StoreWriter) -> None:
    full = record("t", 0, b"", properties={"p": "x" * 32_700})
    stored = writer.append_batch(full, producer=first(1))
    message = Message("t", b"", properties={"p": "x" * 32_650})
    writer.put([message], producer=first(2))
    assert (stored.record_count, stored.repeated) == (1, False)
    end = writer.appended_offset
    with pytest.raises(OutcomeForgotten, match="no room"):
        writer.append_batch(full, producer=again(1))
    with pytest.raises(OutcomeForgotten, match="no room"):
        writer.put([message], producer=again(2))
    assert writer.appended_offset == end
    writer.append_batch(record("t", 0, b"") + full, producer=first(3))
    assert writer.append_batch(record("t", 0, b"") + full, producer=again(3)).repeated


def test_what_was_refused_may_be_sent_again(writer: StoreWriter) -> None:
    with pytest.raises(InvalidMessage):
        writer.put([Message("t", b"a", tag="a|b")], producer=first(1))
    [stored] = writer.put([Message("t", b"a")], producer=again(1))
    assert not stored.repeated


@pytest.mark.parametrize("attempt", [first, again])
def test_a_repeat_is_answered_when_its_topic_is_gone(
    writer: StoreWriter, attempt: Callable[[int], ProducerSequence]
) -> None:
    records = record("t", 0, b"b") * 2
    [stored] = writer.put([Message("t", b"a")], producer=first(1))
    batch = writer.append_batch(records, producer=first(2))
    writer.delete_topic("t")
    answered = writer.put([Message("t", b"a")], producer=attempt(1))
    assert answered == [stored._replace(repeated=True)]
    assert writer.append_batch(records, producer=attempt(2)) == batch._replace(repeated=True)
    assert writer.append_batch_of_few(records, queues_max=9, producer=attempt(2)) is None
    with pytest.raises(TopicNotFound):
        writer.append_batch(records, producer=first(3))
    with pytest.raises(TopicNotFound):
        writer.put([Message("t", b"a")], producer=first(4))


def test_what_the_window_has_forgotten_is_refused_and_not_stored_again(
    writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "SEQUENCES_MAX", 4)
    for sequence in range(1, 8):
        writer.put([Message("t", b"%d" % sequence)], producer=first(sequence))
    end = writer.appended_offset
    for repeat in (again(3), first(3), again(1)):
        with pytest.raises(OutcomeForgotten):
            writer.put([Message("t", b"x")], producer=repeat)
    assert writer.put([Message("t", b"4")], producer=again(4))[0].repeated
    assert writer.appended_offset == end


def test_a_forgotten_producer_is_refused_unless_it_sent_after_all_that_were_forgotten(
    writer: StoreWriter, monkeypatch: pytest.MonkeyPatch, clock: SteppedClock
) -> None:
    monkeypatch.setattr(windows, "PRODUCERS_MAX", 2)
    for producer_id in (1, 2, 3):
        writer.put([Message("t", b"m")], producer=first(1, producer_id))
    assert writer.put([Message("t", b"m")], producer=again(1, 2))[0].repeated
    with pytest.raises(OutcomeForgotten):
        writer.put([Message("t", b"m")], producer=again(1, 1))
    with pytest.raises(OutcomeForgotten):
        writer.put([Message("t", b"m")], producer=again(1, 4, age_ms=1))
    clock.advance(100)
    assert not writer.put([Message("t", b"m")], producer=again(1, 4, age_ms=10_000))[0].repeated


class _SetClock(SteppedClock):
    """A clock whose time of day is set."""

    def __init__(self) -> None:
        super().__init__()
        self.set_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_ms


@pytest.mark.parametrize("stop", ["closed", "killed"])
@pytest.mark.parametrize("set_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_when_all_is_saved_has_nothing_stored_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str, set_ms: int
) -> None:
    monkeypatch.setattr(windows, "PRODUCERS_MAX", 2)
    clock = _SetClock()
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        writer.create_topic("t", 4)
        for producer_id in (1, 2, 3):
            writer.put([Message("t", b"m")], producer=first(1, producer_id))
    workers = SteppedWorkers()
    left = tmp_path / "s"
    with StoreWriter.open(left, small_config(), clock=clock, workers=workers) as writer:
        clock.set_ms = set_ms
        if stop == "killed":
            workers.settle()
            left = shutil.copytree(left, tmp_path / "left")
    with StoreWriter.open(left, small_config(), clock=clock) as writer:
        with pytest.raises(OutcomeForgotten):
            writer.put([Message("t", b"m")], producer=again(1, 1))
        writer.put([Message("t", b"m")], producer=first(1, 4))


@given(
    heard=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), max_size=40),
    copies=st.sets(st.integers(0, 40)),
)
def test_windows_forget_who_was_not_heard_of_for_longest(
    heard: list[tuple[int, int]], copies: set[int]
) -> None:
    """Held against lists in which the last heard of are last; requests that are next are told as such."""
    clock = SteppedClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "PRODUCERS_MAX", 3)
        patch.setattr(windows, "SEQUENCES_MAX", 2)
        patch.setattr(windows, "FOLLOWING_MAX", 3)
        known = windows.ProducerWindows(clock)
        expected: dict[int, dict[int, tuple[int, int]]] = {}
        for place, (producer_id, sequence) in enumerate(heard):
            if place in copies:
                known.copied(place)()
            clock.advance(1)
            if known.is_next(producer_id, sequence):
                assert sequence not in expected[producer_id]
                known.note_next(sequence, place, place + 1)
            else:
                known.note(producer_id, sequence, (place, place + 1))
            requests = expected.pop(producer_id, {})
            requests[sequence] = place, place + 1
            if len(requests) > 2:
                del requests[next(iter(requests))]
            expected[producer_id] = requests
            if len(expected) > 3:
                del expected[next(iter(expected))]
        _, blocks = decode_windows(known.copied(len(heard))())
    assert [(each.producer_id, each.requests) for each in blocks] == list(expected.items())


def test_delayed_messages_are_parked_once_and_answered_the_same(writer: StoreWriter) -> None:
    messages = [
        Message("t", b"now"),
        Message("t", b"a", delay_ms=60_000),
        Message("t", b"b", delay_level=3),
    ]
    stored = writer.put(messages, producer=first(1))
    answered = writer.put(messages, producer=again(1))
    assert answered == [each._replace(repeated=True) for each in stored]
    assert [each.queue_offset for each in answered] == [0, -1, -1]


def test_a_copy_of_a_record_says_nothing(writer: StoreWriter) -> None:
    """A consumer that sends on what it got, properties and all, is not taken for a repeat."""
    [stored] = writer.put([Message("t", b"a")], producer=first(1))
    copied = encode_sequence(ID, 2, 300, stored.commit_offset).decode().split("\x01")
    writer.append_batch(record("t", 0, b"b", properties={copied[0]: copied[1][:-1]}))
    assert not writer.put([Message("t", b"c")], producer=again(2))[0].repeated


def test_a_stop_keeps_all_of_it_and_a_start_reads_no_log_for_it(
    tmp_path: Path, clock: SteppedClock
) -> None:
    messages = [Message("t", b"a"), Message("t", b"b")]
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        writer.create_topic("t", 4)
        stored = writer.put(messages, producer=first(1))
        end = writer.appended_offset
    with StoreWriter.open(tmp_path / "s", small_config(), clock=clock) as writer:
        assert not writer._appender.windows.is_changed
        answered = writer.put(messages, producer=again(1))
        assert answered == [each._replace(repeated=True) for each in stored]
        assert writer.appended_offset == end
        with pytest.raises(InvalidMessage):
            writer.put(messages[:1], producer=first(1))
        assert np.all([not r.repeated for r in writer.put(messages, producer=first(2))])


@pytest.mark.parametrize("attempt", [first, again])
def test_who_comes_while_the_store_is_busy_may_come_again(
    tmp_path: Path, attempt: Callable[[int], ProducerSequence]
) -> None:
    config = small_config(unflushed_bytes_max=600, flush_interval_ms=3_600_000)
    with StoreWriter.open(tmp_path / "s", config) as writer:
        writer.create_topic("t", 1)
        messages, records = [Message("t", b"m" * 100)], record("t", 0, b"r" * 100)
        stored: list[object] = []
        refused = 0
        for sequence in range(1, 20):
            try:
                if sequence % 2:
                    stored += writer.put(messages, producer=attempt(sequence))
                else:
                    stored.append(writer.append_batch(records, producer=attempt(sequence)))
            except StoreBusy:
                refused += 1
        assert 0 < len(stored) < 19 and len(stored) + refused == 19
        end = writer.appended_offset
        assert writer.put(messages, producer=attempt(1)) == [
            stored[0]._replace(repeated=True)  # type: ignore[attr-defined]
        ]
        assert writer.appended_offset == end
