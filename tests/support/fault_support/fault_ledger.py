"""What a store has acknowledged, kept outside of it, and the one checker that all faults are judged by.

``Ledger`` is what clients were told: where each record is, its bytes, its key, and where groups are.
``judge`` holds a reader against it. What it returns must be empty but for ``damaged``, and that may only
name records whose own bytes in the log were hit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import Stored
from storage.errors import QueueRebuilding
from storage.format.record import decode_record
from storage.message import Message, PullStatus, PutResult
from storage.reader import StoreReader
from storage.store import MessageStore
from storage.testing import SteppedWorkers

ALL_MAX = 10_000
EVERYBODY = "everybody"  # a key of all records


class Entry(NamedTuple):
    """One acknowledged record."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_offset: int
    data: bytes
    key: str
    tag: str
    body: bytes = (
        b""  # where it was acknowledged to a client, which does not see the record's other bytes
    )

    def is_served_by(self, record: bytes) -> bool:
        """Whether these are the bytes that were acknowledged."""
        if self.data:
            return record == self.data
        found = decode_record(record)
        served = (found.topic, found.queue_id, found.queue_offset, found.commit_offset, found.body)
        return served == (*self.place, self.commit_offset, self.body) and found.total_size == len(
            record
        )

    @property
    def place(self) -> Place:
        return Place(self.topic, self.queue_id, self.queue_offset)


class Place(NamedTuple):
    topic: str
    queue_id: int
    queue_offset: int


@dataclass
class Ledger:
    """All that must be there."""

    topics: dict[str, int] = field(default_factory=dict)  # name: count of queues
    entries: dict[Place, Entry] = field(default_factory=dict)
    groups: dict[tuple[str, str, int], int] = field(default_factory=dict)
    in_flight: set[bytes] = field(default_factory=set)  # bodies that were sent and not acknowledged
    seen: dict[Place, bytes] = field(default_factory=dict)  # bodies that a consumer was served
    group_attempts: dict[tuple[str, str, int], set[int]] = field(default_factory=dict)  # sent

    @property
    def queues(self) -> list[tuple[str, int]]:
        return [(topic, n) for topic, count in self.topics.items() for n in range(count)]

    def create_topic(self, store: MessageStore, name: str, queue_count: int) -> None:
        store.create_topic(name, queue_count)
        self.topics[name] = queue_count

    def put(self, store: MessageStore, messages: list[Message]) -> None:
        """Store messages and enter each as acknowledged; each has one key of its own, first."""
        for message, result in zip(messages, store.put_all(messages), strict=True):
            self.enter(message, result, appended_bytes(store, result.commit_offset))

    def enter(self, message: Message, result: PutResult, data: bytes) -> None:
        """Enter a record as acknowledged."""
        entry = Entry(
            message.topic, result.queue_id, result.queue_offset, result.commit_offset, data,
            message.keys[0], message.tag,
        )  # fmt: skip
        require(entry.place not in self.entries, f"{entry.place} is given to a second record")
        require(decode_record(data).body == message.body, f"{entry.place} has another body")
        self.entries[entry.place] = entry

    def enter_answer(self, stored: Stored, body: bytes, key: str) -> None:
        """Enter a record as acknowledged to a client."""
        entry = Entry(
            stored.topic, stored.queue_id, stored.queue_offset, stored.commit_offset, b"", key, "",
            body,
        )  # fmt: skip
        require(entry.place not in self.entries, f"{entry.place} is given to a second record")
        self.entries[entry.place] = entry
        self.in_flight.discard(body)

    def as_of_now(self) -> Ledger:
        """Return what is entered by now; the ledger itself goes on."""
        return Ledger(
            dict(self.topics), dict(self.entries), dict(self.groups), seen=dict(self.seen)
        )

    def admit(self, later: Ledger) -> None:
        """Let what a later state of the ledger has be there or not."""
        bodies = {entry.body for place, entry in later.entries.items() if place not in self.entries}
        self.in_flight |= later.in_flight | bodies
        self.group_attempts = later.group_attempts

    def commit(self, store: MessageStore, group: str, topic: str, queue_id: int, to: int) -> None:
        """Save a group's progress, durable on return."""
        self.groups[group, topic, queue_id] = store.reader.commit_offset(group, topic, queue_id, to)
        store.reader.consumer_offsets.save()


class FaultFound(AssertionError):
    """A store has not kept what it has acknowledged."""


def require(holds: bool, what: object) -> None:
    """Raise FaultFound unless it holds."""
    if not holds:
        raise FaultFound(str(what))


def appended_bytes(store: MessageStore, commit_offset: int) -> bytes:
    """Return a record as it was appended, without waiting until a reader may see it."""
    log = store.writer._engine.log
    for file in log._pending():
        if file.start_offset <= commit_offset < file.end_offset:
            position = commit_offset - file.start_offset
            size = int.from_bytes(file.write_array[position : position + 4].tobytes(), "big")
            return bytes(file.write_array[position : position + size].tobytes())
    return bytes(store.message(commit_offset))


@dataclass
class Verdict:
    """What a reader did not answer as the ledger says."""

    damaged: set[Place] = field(default_factory=set)  # named as such: DATA_LOSS
    lost: set[Place] = field(default_factory=set)  # in silence
    passed_over: set[Place] = field(default_factory=set)  # by a filter of their tag, in silence
    wrong: set[Place] = field(default_factory=set)  # other bytes than were acknowledged
    invented: set[Place] = field(default_factory=set)
    lost_keys: set[str] = field(default_factory=set)  # in silence
    named_keys: set[str] = field(default_factory=set)  # not found, and the answer names a range
    groups: dict[tuple[str, str, int], int | None] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)  # that are not known

    @property
    def is_silent_loss(self) -> bool:
        return bool(self.passed_over or self.lost_keys) or self.is_loss_of_records

    @property
    def is_loss_of_records(self) -> bool:
        """Whether more is lost in silence than what a query by key or a filter has to find."""
        return bool(self.lost or self.groups or self.ends or self.topics)

    def is_loss_of(self, places: set[Place], ledger: Ledger) -> bool:
        """Whether records of ``places`` are lost in silence, and nothing else but what hangs on them.

        That is their keys, the ends of their queues, and the groups that were there.
        """
        keys = {ledger.entries[place].key for place in places}
        queues = {(place.topic, place.queue_id) for place in places}
        return (
            self.is_silent_loss
            and not self.topics
            and self.lost | self.passed_over <= places
            and self.lost_keys <= keys
            and self.ends.keys() <= queues
            and {(topic, queue_id) for _, topic, queue_id in self.groups} <= queues
        )

    @property
    def is_wrong(self) -> bool:
        return bool(self.wrong or self.invented)


def judge(
    reader: StoreReader,
    ledger: Ledger,
    *,
    keys: Collection[str] | None = None,
    tags: Iterable[str] = (),
) -> Verdict:
    """Hold all that a reader serves against the ledger; ``keys`` None: each record's key is asked for."""
    verdict = Verdict()
    for topic, queue_id in ledger.queues:
        if topic not in reader.topics:
            verdict.topics.add(topic)
            continue
        expected = {
            place.queue_offset: entry
            for place, entry in ledger.entries.items()
            if (place.topic, place.queue_id) == (topic, queue_id)
        }
        for tag in ("", *tags):
            _judge_queue(reader, (topic, queue_id), tag, expected, ledger, verdict)
        end = reader.max_offset(topic, queue_id)
        least = max(expected, default=-1) + 1
        if end < least or (end > least and not ledger.in_flight):
            verdict.ends[topic, queue_id] = end
    _judge_keys(reader, ledger, keys, verdict)
    for (group, topic, queue_id), offset in ledger.groups.items():
        if topic in verdict.topics:
            continue
        held = reader.committed_offset(group, topic, queue_id)
        attempts = ledger.group_attempts.get((group, topic, queue_id), ())
        if held != offset and (held is None or held < offset or held not in attempts):
            verdict.groups[group, topic, queue_id] = held
    return verdict


def judge_rebuilt(
    reader: StoreReader, ledger: Ledger, workers: SteppedWorkers, *, tags: Iterable[str] = ()
) -> Verdict:
    """Judge beside a writer, again after each rebuild of a queue that the reader waits for."""
    for _ in range(len(ledger.entries) + 1):
        try:
            return judge(reader, ledger, tags=tags)
        except QueueRebuilding:
            workers.step("rebuild")
    raise FaultFound("a queue is being rebuilt, whatever the writer has rebuilt")


def _judge_queue(
    reader: StoreReader, queue: tuple[str, int], tag: str, expected: dict[int, Entry],
    ledger: Ledger, verdict: Verdict,
) -> None:  # fmt: skip
    topic, queue_id = queue
    served: set[int] = set()
    unanswered: set[bytes] = set()  # bodies served that were not acknowledged
    at = 0
    while True:
        result = reader.pull(
            topic, queue_id, queue_offset=at, max_messages=ALL_MAX, tag_expression=tag
        )
        data, position = b"".join(result.slices), 0
        for queue_offset in result.queue_offsets:
            size = int.from_bytes(data[position : position + 4], "big")
            record = data[position : position + size]
            position += size
            place = Place(topic, queue_id, queue_offset)
            if queue_offset in served:
                verdict.invented.add(place)
            elif queue_offset not in expected:
                body = decode_record(record).body
                if body not in ledger.in_flight or body in unanswered:
                    verdict.invented.add(place)
                unanswered.add(body)
            elif not expected[queue_offset].is_served_by(record):
                verdict.wrong.add(place)
            seen = ledger.seen.get(place)
            if seen is not None and decode_record(record).body != seen:
                verdict.wrong.add(place)
            served.add(queue_offset)
        verdict.damaged |= {Place(topic, queue_id, each.queue_offset) for each in result.damaged}
        if result.next_offset <= at or result.status in (
            PullStatus.OFFSET_OVERFLOW_ONE, PullStatus.OFFSET_OVERFLOW_BADLY,
            PullStatus.NO_MESSAGE_IN_QUEUE,
        ):  # fmt: skip
            break
        at = result.next_offset
    for queue_offset, entry in expected.items():
        if tag not in ("", entry.tag) or queue_offset in served:
            continue
        if entry.place not in verdict.damaged:
            (verdict.passed_over if tag else verdict.lost).add(entry.place)
    if tag == "":
        verdict.lost |= {
            place
            for place in ledger.seen
            if (place.topic, place.queue_id) == queue
            and place.queue_offset not in served
            and place not in verdict.damaged
        }


def _judge_keys(
    reader: StoreReader, ledger: Ledger, keys: Collection[str] | None, verdict: Verdict
) -> None:
    for entry in ledger.entries.values():
        if keys is not None and entry.key not in keys:
            continue
        if entry.topic in verdict.topics:
            continue
        answer = reader.query_by_key(entry.topic, entry.key)
        found = b"".join(answer.slices)
        if found and entry.is_served_by(found):
            continue
        if found:
            verdict.wrong.add(entry.place)
        elif entry.place in verdict.damaged:
            continue
        elif (
            answer.damaged
            or entry.commit_offset >= answer.indexed_offset
            or any(
                each.begin_commit_offset <= entry.commit_offset < each.end_commit_offset
                for each in answer.uncovered
            )
        ):
            verdict.named_keys.add(entry.key)
        else:
            verdict.lost_keys.add(entry.key)
