"""A queue's newest file that is removed beside a writer, before it has noticed: groups keep their offsets."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from background_loop import BackgroundService
from service_settings import reader_settings

from penstock.v1 import leases_pb2, leases_pb2_grpc, reader_pb2, reader_pb2_grpc
from services.reader import __main__ as reader_main
from storage import Message, MessageStore, StoreConfig, StoreReader
from storage.errors import StoreClosed
from storage.format.record import decode_record
from storage.leases.leases import Leases
from storage.leases.values import ReceiveQuestion
from storage.message import PullStatus
from storage.tables.groups import GroupConfig
from storage.testing import SteppedClock, SteppedWorkers
from storage.view.queues import reach
from storage.view.queues.reach import QueueReach

UNITS_PER_FILE = 20
CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=UNITS_PER_FILE * 20, index_slot_count=7,
    index_entry_count=500,
)  # fmt: skip
COUNT = 65  # in each of two queues: three files and a bit
KEPT = 60
AT = 64  # where the group was
GROUP = GroupConfig(name="g")


class Running:
    """A store whose writer makes no step by itself."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock, self.workers = SteppedClock(), SteppedWorkers()
        self.store = MessageStore.open(directory, CONFIG, clock=self.clock, workers=self.workers)
        self.store.create_topic("t", 2)
        self.put(*[n % 2 for n in range(2 * COUNT)])

    def put(self, *queue_ids: int) -> None:
        self.store.put_all([Message(topic="t", body=b"x", queue_id=each) for each in queue_ids])
        self.workers.step("dispatch")

    def commit(self, queue_offset: int, queue_id: int = 0, group: str = "g") -> None:
        """Have a group be somewhere, whether its queue goes that far or not."""
        with StoreReader.open(self.directory) as reader:
            reader.consumer_offsets.commit(group, "t", queue_id, queue_offset)

    def make_again(self) -> None:
        self.clock.advance(1_000)
        self.workers.step("scrub")
        assert self.store.status().scrub.finding_count

    def files(self) -> list[Path]:
        return sorted((self.directory / "consumequeue" / "t" / "0").iterdir())


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "s")
    running.commit(AT)
    yield running
    running.store.close()


@pytest.fixture(name="walks")
def _walks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Which ranges of the log a reader reads for it."""
    walks: list[tuple[int, int]] = []
    walk = QueueReach._walk

    def counted(self: QueueReach, found: Any, begin: int, end: int) -> None:
        walks.append((begin, end))
        walk(self, found, begin, end)

    monkeypatch.setattr(QueueReach, "_walk", counted)
    return walks


def last(running: Running) -> None:
    running.files()[-1].unlink()


def two(running: Running) -> None:
    for path in running.files()[-2:]:
        path.unlink()


def every(running: Running) -> None:
    for path in running.files():
        path.unlink()


def directory(running: Running) -> None:
    shutil.rmtree(running.directory / "consumequeue" / "t" / "0")


def all_queues(running: Running) -> None:
    shutil.rmtree(running.directory / "consumequeue")


def a_hole_again(running: Running) -> None:
    """As the writer makes it before it writes the units."""
    path = running.files()[-1]
    path.unlink()
    path.write_bytes(bytes(UNITS_PER_FILE * 20))


def partly_again(running: Running) -> None:
    path = running.files()[-1]
    units = path.read_bytes()
    path.unlink()
    path.write_bytes(units[:60] + bytes(UNITS_PER_FILE * 20 - 60))


HELD_AGAIN = (a_hole_again, partly_again)
REMOVALS = [last, two, every, directory, all_queues, a_hole_again, partly_again]
removals = pytest.mark.parametrize("remove", REMOVALS, ids=lambda remove: remove.__name__)


def served(reader: StoreReader, queue_id: int = 0) -> int:
    count, queue_offset = 0, reader.min_offset("t", queue_id)
    while queue_offset < reader.max_offset("t", queue_id):
        result = reader.pull("t", queue_id, queue_offset=queue_offset, max_messages=1_000)
        assert result.next_offset > queue_offset
        count, queue_offset = count + result.record_count, result.next_offset
    return count


@removals
@pytest.mark.parametrize("has_deleted", [False, True], ids=["whole", "has-deleted"])
def test_a_group_stays_where_it_is_and_a_commit_is_not_moved_down(
    running: Running, remove: Callable[[Running], None], has_deleted: bool
) -> None:
    if has_deleted:  # the first of each queue
        running.store.writer._engine.positions.publish_min_commit_offset(330)
    remove(running)
    with StoreReader.open(running.directory) as reader:
        assert reader.commit_offset("h", "t", 0, AT + 1) == AT + 1
        assert reader.commit_offset("h", "t", 0, 1 << 40) == COUNT
        assert reader.commit_offset("h", "t", 0, AT) == AT
    with StoreReader.open(running.directory) as reader:
        reader.consumer_offsets.own()  # what it lowers it saves
        low = reader.min_offset("t", 0)
        assert reader.committed_offset("g", "t", 0) == AT
        assert reader.min_offset("t", 0) == max(low, int(has_deleted))
        assert reader.committed_offsets("g") == {"t": {0: AT}}
        assert reader.max_offset("t", 0) == COUNT
        assert reader.pull("t", 0, queue_offset=AT).record_count == 1
        assert served(reader) >= COUNT - 2  # those deleted
    if remove not in HELD_AGAIN:
        running.make_again()
        with StoreReader.open(running.directory) as reader:
            assert reader.committed_offset("g", "t", 0) == AT
            assert served(reader) >= COUNT - 2


def test_the_log_is_read_from_the_last_unit_on_and_once(
    running: Running, walks: list[tuple[int, int]]
) -> None:
    unit = running.store.reader.queue_view("t", 0).unit(KEPT - 1)
    assert unit is not None
    last(running)
    with StoreReader.open(running.directory) as reader:
        end = reader.visible_offset
        for _ in range(3):
            assert reader.committed_offset("g", "t", 0) == AT
        assert walks == [(unit.commit_offset + unit.size, end)]
        running.commit(30)
        running.put(0, 0, 1)
        running.commit(COUNT + 2)
        for _ in range(3):
            assert reader.committed_offset("g", "t", 0) == COUNT + 2
        assert walks[1:] == [(end, reader.visible_offset)]


def test_views_that_are_made_later_end_there_too(running: Running) -> None:
    last(running)
    with StoreReader.open(running.directory) as reader:
        assert reader.committed_offset("g", "t", 0) == AT
        reader._queues._kept.clear()  # as where there are more of them than are kept
        assert reader.max_offset("t", 0) == COUNT
        reader._queues.forget()  # as topics changed
        assert reader.pull("t", 0, queue_offset=AT).status is PullStatus.FOUND


def test_one_walk_serves_all_queues(running: Running, walks: list[tuple[int, int]]) -> None:
    running.commit(AT, queue_id=1)
    shutil.rmtree(running.directory / "consumequeue" / "t" / "1")  # which is read up to the rest
    last(running)
    with StoreReader.open(running.directory) as reader:
        assert reader.committed_offsets("g") == {"t": {0: AT, 1: AT}}
        assert served(reader, 1) == COUNT
        begins, ends = zip(*walks, strict=True)
        assert (min(begins), max(ends)) == (0, reader.visible_offset)
        assert sum(ends) - sum(begins) == reader.visible_offset


def test_whole_queues_are_not_looked_up(running: Running, walks: list[tuple[int, int]]) -> None:
    with StoreReader.open(running.directory) as reader:
        assert reader.committed_offset("g", "t", 0) == AT
        assert reader.commit_offset("g", "t", 0, COUNT) == COUNT
        assert reader.pull("t", 0, queue_offset=COUNT + 1).next_offset == COUNT
    assert walks == []


def test_an_offset_that_no_record_has_is_lowered_after_one_walk(
    running: Running, walks: list[tuple[int, int]]
) -> None:
    running.commit(70)
    with StoreReader.open(running.directory) as reader:
        for _ in range(3):
            assert reader.committed_offset("g", "t", 0) == COUNT
    assert len(walks) == 1
    with StoreReader.open(running.directory) as reader:
        reader.consumer_offsets.own()
        assert reader.committed_offset("g", "t", 0) == COUNT
        assert reader.consumer_offsets.fetch("g", "t", 0) == COUNT


def test_what_the_log_has_lost_too_is_lost(running: Running) -> None:
    view = running.store.reader.queue_view("t", 0)
    lost = [view.unit(queue_offset) for queue_offset in range(62, COUNT)]
    with (running.directory / "commitlog" / f"{0:020d}").open("r+b") as log:
        for unit in lost:
            assert unit is not None
            log.seek(unit.commit_offset)
            log.write(bytes(unit.size))
    last(running)
    with StoreReader.open(running.directory) as reader:
        assert reader.committed_offset("g", "t", 0) == 62
        assert reader.commit_offset("g", "t", 0, COUNT) == 62


@pytest.mark.parametrize("name", [0, 1])
def test_records_of_an_earlier_topic_of_the_name_do_not_count(
    running: Running, walks: list[tuple[int, int]], name: int
) -> None:
    deleted_offset = running.store.status().appended_offset
    running.store.delete_topic("t")
    running.store.create_topic("t", 2)
    running.put(0, 0, 0)
    running.commit(AT, queue_id=name)
    with StoreReader.open(running.directory) as reader:
        assert reader.committed_offset("g", "t", name) == (3, 0)[name]
    assert all(begin >= deleted_offset for begin, _ in walks)


def test_a_topic_that_is_made_again_while_its_log_is_read_is_looked_up_anew(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = QueueReach._walk

    def then_made_again(self: QueueReach, found: Any, begin: int, end: int) -> None:
        walk(self, found, begin, end)
        if running.store.writer._engine.topics.get("t").read_queue_count == 2:
            running.store.delete_topic("t")
            running.store.create_topic("t", 3)
            running.put(0, 0, 0)
            reader.refresh()  # another thread's look

    monkeypatch.setattr(QueueReach, "_walk", then_made_again)
    last(running)
    with StoreReader.open(running.directory) as reader:
        reader.committed_offset("g", "t", 0)
        assert reader.max_offset("t", 0) == 3
        reader.consumer_offsets.commit("g", "t", 0, AT)
        assert reader.committed_offset("g", "t", 0) == 3


def test_a_record_with_a_wrong_queue_offset_leads_no_queue_astray(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a broker's log, where no checksum covers it."""
    real = reach._reach_on

    def flipped(found: Any, key: Any, built: Any, since: int) -> None:
        if key == ("t", 0):
            built.queue_offsets[0] += 1 << 40
        real(found, key, built, since)

    monkeypatch.setattr(reach, "_reach_on", flipped)
    last(running)
    with StoreReader.open(running.directory) as reader:
        assert reader.committed_offset("g", "t", 0) == KEPT
        assert reader.max_offset("t", 0) == KEPT


def test_a_walk_ends_with_the_reader(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = reach.record_runs

    def ends_it(*arguments: Any) -> Iterator[Any]:
        reader.end()
        yield from runs(*arguments)

    monkeypatch.setattr(reach, "record_runs", ends_it)
    last(running)
    with StoreReader.open(running.directory) as reader, pytest.raises(StoreClosed):
        reader.committed_offset("g", "t", 0)


def test_an_offset_that_is_set_meanwhile_is_not_lowered(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = QueueReach._walk

    def beside_a_commit(self: QueueReach, *arguments: Any) -> None:
        walk(self, *arguments)
        reader.consumer_offsets.commit("g", "t", 0, 66)

    running.commit(70)
    with StoreReader.open(running.directory) as reader:
        reader.consumer_offsets.own()
        monkeypatch.setattr(QueueReach, "_walk", beside_a_commit)
        assert reader.committed_offset("g", "t", 0) == COUNT
        assert reader.consumer_offsets.fetch("g", "t", 0) == 66


class Leased:
    """A reader's leases of queue 0."""

    def __init__(self, running: Running) -> None:
        self.reader = StoreReader.open(running.directory)
        self.leases = Leases(self.reader)

    def done(self, count: int) -> int:
        """Receive and acknowledge; return how many there were."""
        question = ReceiveQuestion(max_messages=count, queue_ids=(0,))
        batch = self.leases.receive(GROUP, "t", question)
        self.leases.acknowledge(GROUP.name, "t", batch.receipt_handles)
        return batch.record_count

    @property
    def next_offset(self) -> int:
        [offset] = [
            each.next_offset for each in self.leases.progress(GROUP, "t") if each.queue_id == 0
        ]
        return offset

    def close(self) -> None:
        self.leases.close()
        self.reader.close()


@removals
def test_leases_go_on_where_they_were(running: Running, remove: Callable[[Running], None]) -> None:
    leased = Leased(running)
    assert leased.done(32) == 1  # the last, as the group was committed before
    running.put(0, 0)
    assert leased.done(32) == 2
    leased.close()
    remove(running)
    leased = Leased(running)  # goes on with its journal
    assert leased.done(32) == 0
    leased.close()
    if remove not in HELD_AGAIN:
        running.make_again()
        leased = Leased(running)
        assert leased.done(32) == 0
        running.put(0)
        assert leased.done(32) == 1
        leased.close()


@removals
def test_leases_of_a_reader_that_looks_again_go_on(
    running: Running, remove: Callable[[Running], None]
) -> None:
    leased = Leased(running)
    assert leased.done(32) == 1
    remove(running)
    running.store.create_topic("another", 1)
    running.put(0)
    count = leased.done(32)
    assert count == int(remove is not partly_again)  # which it looks at again after a while
    assert leased.next_offset == COUNT + count
    leased.close()


@removals
def test_services_keep_a_group_where_it_is(
    running: Running, remove: Callable[[Running], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that starts in that time: offsets, lag, a commit, and messages that are received."""
    threads: list[str] = []
    walk = QueueReach._walk

    def noted(self: QueueReach, *arguments: Any) -> None:
        threads.append(threading.current_thread().name)
        walk(self, *arguments)

    monkeypatch.setattr(QueueReach, "_walk", noted)
    remove(running)
    service = BackgroundService(reader_main.serve, reader_settings(running.directory))
    with service, grpc.insecure_channel(service.address) as channel:
        reader = reader_pb2_grpc.ReaderStub(channel)
        leases = leases_pb2_grpc.LeasesStub(channel)

        def fetched() -> tuple[int, int, int]:
            answer = reader.FetchOffsets(reader_pb2.FetchOffsetsRequest(group="g"), timeout=30)
            [found] = [each for each in answer.offsets if each.queue_id == 0]
            return found.queue_offset, found.max_offset, found.lag

        commit = reader_pb2.CommitOffsetRequest(group="h", topic="t", queue_offset=COUNT)
        if remove is not partly_again:  # where it is refused until the writer has done the rest
            reader.CommitOffset(commit, timeout=30)
        assert fetched() == (AT, COUNT, 1)
        answer = leases.Receive(
            leases_pb2.ReceiveRequest(group="g", topic="t", max_messages=32, queue_ids=[0]),
            timeout=30,
        )
        assert [record.queue_offset for record in decoded(answer.records)] == [AT]
        reader.CommitOffset(commit, timeout=30)
        if remove not in HELD_AGAIN:
            running.make_again()
            assert fetched() == (AT, COUNT, 1)
    assert threads
    assert not [name for name in threads if not name.startswith(("reads", "leasing", "asyncio"))]
    with StoreReader.open(running.directory) as opened:
        assert opened.committed_offset("h", "t", 0) == COUNT
        assert opened.committed_offset("g", "t", 0) == AT


def decoded(data: bytes) -> list[Any]:
    found, position = [], 0
    while position < len(data):
        found.append(decode_record(data, position))
        position += found[-1].total_size
    return found
