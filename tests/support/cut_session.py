"""One opening of a store on a disk that may go down, and what it has acknowledged or shown beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from engine_store import record, records_in

from storage.errors import (
    QueueRebuilding,
    StoreBusy,
    StoreError,
    StoreFailed,
    StoreFull,
    TopicNotFound,
)
from storage.format.record import decode_record
from storage.indexer import StoreIndexer
from storage.message import Message, PullStatus
from storage.reader import StoreReader
from storage.testing import ProcessStopped
from storage.view.layout import StorePaths
from storage.view.settings import load_settings
from storage.writer import StoreWriter

if TYPE_CHECKING:
    from cut_store import CutStore

TOPICS = ("a", "b", "c")
QUEUES = 2
GROUPS = ("g", "h")


@dataclass
class Kept:
    """One record as it was stored."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_offset: int
    data: bytes
    unique_key: str
    sure: bool = False  # whatever happens
    alive: bool = False  # unless the power fails
    deleted: bool = False  # by retention: it may be there or not

    @property
    def end(self) -> int:
        return self.commit_offset + len(self.data)


@dataclass
class Model:
    """What is stored, and what of it must survive."""

    topics: dict[str, int] = field(default_factory=dict)  # name: queue count
    queues: dict[tuple[str, int], dict[int, Kept]] = field(default_factory=dict)
    left: dict[int, Kept] = field(default_factory=dict)  # records of deleted topics, in the log
    offsets: dict[tuple[str, str, int], set[int | None]] = field(default_factory=dict)
    # What it was of a topic before its deletion, which may not be finished.
    undeleted: dict[tuple[str, str, int], set[int | None]] = field(default_factory=dict)
    unsaved: dict[tuple[str, str, int], int] = field(default_factory=dict)
    doing: dict[str, str] = field(default_factory=dict)  # topics being created or deleted
    store_id: bytes = b""

    def all(self) -> list[Kept]:
        return [kept for queue in self.queues.values() for kept in queue.values()]


class Session:
    """One opening of the store, up to its end."""

    def __init__(self, owner: CutStore) -> None:
        self.owner = owner
        self.disk = owner.disk
        self.dice = owner.dice
        self.model = owner.model
        self.directory = owner.directory
        self.had_fault = self.disk.fault is not None
        self.writer: StoreWriter | None = None
        self.indexer: StoreIndexer | None = None
        self.reader: StoreReader | None = None

    def expects(self, error: BaseException) -> bool:
        """Whether a failure is one that a failing disk may cause."""
        return self.had_fault

    def abandon(self) -> None:
        self.writer = self.indexer = self.reader = None

    def work(self, actions: int) -> None:
        disk, owner = self.disk, self.owner
        config = owner.start(
            flush_mode="sync" if owner.sync else "async",
            transient_pool=owner.pool,
            transient_pool_size=3,
            index_slot_count=20,
            index_entry_count=60,
            commit_log_file_size=owner.log_file_size,
            consume_queue_file_size=owner.queue_file_size,
            scrub_interval_ms=1,
            retention_ms=int(owner.retains),
            retention_delete_hours="*",
        )
        self.workers = owner.workers
        self.writer = StoreWriter.open(
            self.directory, config, filesystem=disk, clock=owner.clock, workers=self.workers
        )
        self.indexer = StoreIndexer.open(
            self.directory, config, filesystem=disk, clock=owner.clock,
            unclean=self.writer.stopped_unclean,
            durable_interval_ms=self.dice.choice((0, 2_000, 10**9)), workers=self.workers,
        )  # fmt: skip
        self.indexer.start()
        self.reader = StoreReader.open(self.directory, config, filesystem=disk, clock=owner.clock)
        self.check()
        self.promise()
        weights = [self.dice.choice(self.turns.get(name, (0, 1))) for name, _ in self.actions]
        choices = [*self.actions, ("clean", Session.clean)]
        weights.append(2 if owner.retains else 0)
        for _ in range(actions):
            [(name, action)] = self.dice.choices(choices, weights)
            owner.log.append(f"  {disk.step_count} {name}")
            try:
                action(self)
            except (StoreFull, StoreBusy, StoreFailed, OSError) as error:
                owner.log.append(f"    {error!r}")
                if disk.successor is not None:
                    raise ProcessStopped from None
                if not isinstance(error, StoreBusy) and not self.had_fault:
                    raise
            self.promise()

    def promise(self) -> None:
        """Note what must survive from now on."""
        if self.disk.successor is None and self.writer is not None:
            self.owner.acknowledged = self.writer.acknowledged_offset
            self.owner.flushed = self.writer.status().flushed_offset
            assert self.owner.flushed <= self.writer.appended_offset
            if self.owner.sync:
                assert self.owner.acknowledged == self.owner.flushed

    def close(self) -> None:
        self.owner.log.append(f"  {self.disk.step_count} close")
        assert self.writer and self.indexer and self.reader
        saving = dict(self.model.unsaved)
        for key, offset in saving.items():
            self.model.offsets[key].add(offset)
        self.reader.close()
        self.saved(saving)
        self.indexer.close()
        appended = self.writer.appended_offset
        self.writer.close()
        if self.writer._engine.log.flushed_offset < appended or self.writer.failure():
            raise StoreFailed("not closed in order")

    # ---- what a store is asked to do

    def put(self) -> None:
        assert self.writer is not None
        topics = sorted(self.model.topics)
        if not topics:
            return
        dice = self.dice
        count = dice.choice((1, 1, 2, 5, 20))
        same = dice.random() < 0.5
        wanted = []
        for _ in range(count):
            self.owner.number += 1
            size = 100 if same else dice.choice((0, 10, 100, 700, 3000 if count < 5 else 300))
            key = f"u{self.owner.number}"
            wanted.append((dice.choice(topics), dice.randrange(QUEUES), dice.randbytes(size), key))
        writer = self.writer
        if dice.random() < 0.5:
            messages = [
                Message(topic=t, queue_id=q, body=body, keys=("all",), unique_key=key)
                for t, q, body, key in wanted
            ]
            results = writer.put(messages)
            placed = [(r.queue_offset, r.commit_offset) for r in results]
        else:
            batch = b"".join(
                record(t, q, body, keys="all", properties={"UNIQ_KEY": key})
                for t, q, body, key in wanted
            )
            result = writer.append_batch(batch)
            at = {(r.topic, r.queue_id): r.first_queue_offset for r in result.ranges}
            placed, commit_offset = [], result.commit_offset
            for t, q, _, _ in wanted:
                placed.append((at[t, q], commit_offset))
                at[t, q] += 1
                commit_offset += self._size_at(commit_offset)
        for (t, q, body, key), (queue_offset, commit_offset) in zip(wanted, placed, strict=True):
            data = self._bytes_at(commit_offset, self._size_at(commit_offset))
            found = decode_record(data)
            assert (found.topic, found.queue_id, found.body) == (t, q, body)
            assert (found.queue_offset, found.commit_offset) == (queue_offset, commit_offset)
            queue = self.model.queues.setdefault((t, q), {})
            held = queue.get(queue_offset)
            assert held is None, f"{t} {q} {queue_offset} is given to a second record"
            assert queue_offset > max(queue, default=-1)
            queue[queue_offset] = Kept(t, q, queue_offset, commit_offset, data, key)

    def _array_of(self, commit_offset: int) -> tuple[Any, int]:
        assert self.writer is not None
        log = self.writer._engine.log
        for file in log._pending():
            if file.start_offset <= commit_offset < file.end_offset:
                return file.write_array, commit_offset - file.start_offset
        file = log.files.find(commit_offset)
        assert file is not None
        return file.array, commit_offset - file.start_offset

    def _size_at(self, commit_offset: int) -> int:
        return int.from_bytes(self._bytes_at(commit_offset, 4), "big")

    def _bytes_at(self, commit_offset: int, size: int) -> bytes:
        array, position = self._array_of(commit_offset)
        return bytes(array[position : position + size])

    def index(self) -> None:
        assert self.indexer is not None
        for _ in range(self.dice.choice((1, 3))):
            self.workers.step("index")
        if self.dice.random() < 0.3:
            self.indexer.sync()

    def create_topic(self) -> None:
        assert self.writer is not None
        name = self.dice.choice(TOPICS)
        if name in self.model.topics:
            return
        self.model.doing[name] = "create"
        self.writer.create_topic(name, QUEUES)
        self.model.topics[name] = QUEUES
        del self.model.doing[name]

    def delete_topic(self) -> None:
        assert self.writer is not None
        name = self.dice.choice(TOPICS)
        if name not in self.model.topics or self.dice.random() < 0.5:
            return
        if self.writer.failure() is None:
            self.model.doing[name] = "delete"
        try:
            self.writer.delete_topic(name)
        except (StoreError, OSError):
            if self.writer.failure() is None and self.disk.successor is None:
                del self.model.doing[name]  # it has been taken back
            raise
        del self.model.doing[name]
        self.forget_topic(name)
        try:
            self.reader.pull(name, 0, queue_offset=0)
        except TopicNotFound:
            return
        raise AssertionError(f"{name} was deleted and is served")

    def forget_topic(self, name: str) -> None:
        self.model.topics.pop(name, None)
        for each in [each for each in self.model.offsets if each[1] == name]:
            self.model.undeleted[each] = self.model.offsets[each]
            self.model.offsets[each] = {None}
            self.model.unsaved.pop(each, None)
        for key in [key for key in self.model.queues if key[0] == name]:
            for kept in self.model.queues.pop(key).values():
                self.model.left[kept.commit_offset] = kept

    def read(self) -> None:
        """What a consumer has seen must be there again, but for a power cut in async mode."""
        assert self.reader is not None
        for (topic, queue_id), queue in sorted(self.model.queues.items()):
            served = self._served(topic, queue_id)
            for queue_offset, data in served.items():
                if data is not None:
                    assert queue_offset in queue, f"{topic} {queue_id} {queue_offset} invented"
                    kept = queue[queue_offset]
                    assert data == kept.data
                    kept.sure = kept.sure or self.owner.sync

    def commit_offset(self) -> None:
        assert self.reader is not None
        if not self.model.topics:
            return
        topic, queue_id = self.dice.choice(sorted(self.model.topics)), self.dice.randrange(QUEUES)
        group = self.dice.choice(GROUPS)
        value = self.reader.commit_offset(group, topic, queue_id, self.dice.randint(0, 50))
        self.model.unsaved[group, topic, queue_id] = value
        # All progress is saved, too, when whoever keeps it learns that a topic was deleted.
        self.model.offsets.setdefault((group, topic, queue_id), {None}).add(value)

    def save_offsets(self) -> None:
        assert self.reader is not None
        saving = dict(self.model.unsaved)
        for key, offset in saving.items():
            self.model.offsets[key].add(offset)
        self.reader.consumer_offsets.save()
        self.saved(saving)

    def saved(self, saving: dict[tuple[str, str, int], int]) -> None:
        for key, offset in saving.items():
            self.model.offsets[key] = {offset}
        self.model.unsaved.clear()

    def clean(self) -> None:
        """Make steps of retention: whole files of the log go, and what queues and index held of them.

        Mostly after steps of all that hold files: each is needed until what follows it is durable.
        """
        for _ in range(self.dice.choice((1, 2, 8))):
            try:
                if self.dice.random() < 0.75:
                    self.workers.settle()
                self.workers.step("retention")
            finally:
                self.note_deleted()

    def note_deleted(self) -> None:
        """Note what lies before the start of the log."""
        assert self.writer is not None
        minimum = self.writer.status().min_commit_offset
        self.owner.deleted_count += minimum > self.owner.min_offset
        self.owner.min_offset = minimum
        for kept in [*self.model.all(), *self.model.left.values()]:
            kept.deleted = kept.deleted or kept.commit_offset < minimum

    def scrub(self) -> None:
        """Read a window of what is durable: no unit of it is wrong, whatever became of the log."""
        self.workers.step("scrub")
        last_finding = self.writer.status().scrub.last_finding
        assert not last_finding.startswith("queue-unit"), last_finding

    actions: ClassVar[list[tuple[str, Callable[[Any], None]]]] = [
        ("put", put),
        ("flush", lambda self: self.workers.step("flush")),
        ("commit", lambda self: self.owner.pool and self.workers.step("commit")),
        ("dispatch", lambda self: self.workers.step("dispatch")),
        ("checkpoint", lambda self: self.workers.step("checkpoint")),
        ("allocate", lambda self: self.workers.step("allocate")),
        ("scrub", scrub),
        ("index", index),
        ("read", read),
        ("create_topic", create_topic),
        ("delete_topic", delete_topic),
        ("commit_offset", commit_offset),
        ("save_offsets", save_offsets),
    ]
    # Some of a machine's threads may not get a turn all through a session.
    turns: ClassVar[dict[str, tuple[int, ...]]] = {
        "put": (4, 8),
        "flush": (0, 1, 3),
        "commit": (1, 3),
        "dispatch": (0, 2, 4),
        "checkpoint": (0, 1, 3),
        "index": (0, 1, 3),
        "read": (1, 3),
        "create_topic": (2,),
    }

    # ---- what must be there

    def _served(self, topic: str, queue_id: int) -> dict[int, bytes | None]:
        """All that a consumer gets of a queue: records, and None for one that is damaged."""
        assert self.reader is not None
        served: dict[int, bytes | None] = {}
        offset = 0
        while True:
            try:
                result = self.reader.pull(topic, queue_id, queue_offset=offset, max_messages=200)
            except QueueRebuilding:  # a record that the cut has damaged
                self.workers.step("rebuild")
                continue
            if result.status is PullStatus.OFFSET_TOO_SMALL and result.next_offset > offset:
                offset = result.next_offset
                continue
            if result.status is not PullStatus.FOUND:
                assert offset == result.max_offset or result.max_offset == 0, result
                return served
            data = b"".join(result.slices)
            position = 0
            for queue_offset in result.queue_offsets:
                size = int.from_bytes(data[position : position + 4], "big")
                served[queue_offset] = data[position : position + size]
                position += size
            for damage in result.damaged:
                served[damage.queue_offset] = None
            assert sorted(served) == list(range(min(served), result.next_offset)), sorted(served)
            offset = result.next_offset

    def check(self) -> None:
        """After a recovery: all that must survive, nothing else, and it stays so."""
        assert self.writer and self.reader
        model = self.model
        settings = load_settings(self.disk, StorePaths(self.directory))
        assert settings.present
        assert model.store_id in (b"", settings.store_id)
        model.store_id = settings.store_id
        self._check_topics()
        self.note_deleted()
        for topic in sorted(model.topics):
            for queue_id in range(QUEUES):
                self._check_queue(topic, queue_id)
        self._check_keys()
        for (group, topic, queue_id), allowed in model.offsets.items():
            value = self.reader.committed_offset(group, topic, queue_id)
            if topic == settings.deleting_topic:
                assert value in allowed | model.undeleted[group, topic, queue_id]
                continue
            if topic in model.topics:
                # Where the queue has lost its end, the group goes on at its end.
                end_offset = self.reader.max_offset(topic, queue_id)
                allowed = {None if each is None else min(each, end_offset) for each in allowed}
            assert value in allowed, f"{group} {topic} {queue_id}: {value} not in {allowed}"
            model.offsets[group, topic, queue_id] = {value}
        model.unsaved.clear()

    def _check_topics(self) -> None:
        assert self.writer and self.reader
        model = self.model
        found = {topic.name: topic.queue_count for topic in self.writer.list_topics()}
        doing, model.doing = model.doing, {}
        for name, kind in doing.items():
            if kind == "create" and name in found:
                model.topics[name] = QUEUES
            elif kind == "delete" and name not in found:
                self.forget_topic(name)
        assert found == model.topics, f"topics {found}, promised {model.topics}"
        assert {topic.name for topic in self.reader.topics} == set(model.topics)
        for topic, _ in self.reader.queues_on_disk():
            assert topic in model.topics, f"queues of {topic} are back"

    def _check_queue(self, topic: str, queue_id: int) -> None:
        queue = self.model.queues.setdefault((topic, queue_id), {})
        served = self._served(topic, queue_id)
        for queue_offset, data in served.items():
            kept = queue.get(queue_offset)
            if data is not None:
                assert kept is not None, f"{topic} {queue_id} {queue_offset} is invented"
                assert data == kept.data, f"{topic} {queue_id} {queue_offset} is another record"
        for queue_offset, kept in list(queue.items()):
            there = served.get(queue_offset) is not None
            assert there or not kept.alive or kept.deleted, (
                f"{topic} {queue_id} {queue_offset} at {kept.commit_offset} is lost"
            )
            if there:
                kept.sure = True  # served after a recovery: nothing may take it back
            else:
                del queue[queue_offset]
        if self.owner.sync and not self.owner.faulty:
            damaged = [queue_offset for queue_offset, data in served.items() if data is None]
            assert not damaged, f"{topic} {queue_id} {damaged} are damaged, and were never promised"
        assert self.writer is not None
        _, end = self.writer.describe_topic(topic)[1][queue_id]
        if served or not self.owner.retains:
            assert end == max(served, default=-1) + 1, f"{topic} {queue_id} goes on at {end}"

    def _found_by_key(self, topic: str) -> list[int] | None:
        """Return where records with the key of all are; None if the index says that it does not cover all."""
        assert self.reader
        found: list[int] = []
        token = ""
        while True:
            page = self.reader.query_by_key(topic, "all", max_messages=100, page_token=token)
            if page.uncovered:
                return None
            found += [each.commit_offset for each in records_in(page.slices)]
            token = page.next_page_token
            if not token:
                return found

    def _check_keys(self) -> None:
        assert self.writer and self.reader and self.indexer
        while self.indexer.step():
            pass
        assert self.indexer.indexed_offset >= self.writer.appended_offset
        for topic in sorted(self.model.topics):
            stored = [k for k in self.model.all() if k.topic == topic]
            expected = {k.commit_offset for k in stored if not k.deleted}
            allowed = {k.commit_offset for k in stored} | {
                k.commit_offset for k in self.model.left.values()
            }
            found = self._found_by_key(topic)
            assert found is not None, "an index file is missing"
            assert len(found) == len(set(found))
            assert expected <= set(found), f"keys of {sorted(expected - set(found))} are lost"
            assert set(found) <= allowed, f"{sorted(set(found) - allowed)} found by key"
        there = [kept for kept in self.model.all() if not kept.deleted]
        for kept in self.dice.sample(there, min(5, len(there))):
            answers = self.reader.query_by_key(kept.topic, kept.unique_key, unique=True)
            assert b"".join(answers.slices) == kept.data
