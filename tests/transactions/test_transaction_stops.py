"""A transaction is committed or given up whole or not at all, and once, wherever kills and power cuts stop the writer."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from engine_store import records_on_disk, small_config
from hand_clock import HandClock
from hand_store import OP, HandStore, message
from steps_to_try import ALL_STEPS

from storage.errors import InvalidMessage
from storage.files.filesystem import FileSystem
from storage.format.names import GIVEN_UP_TOPIC as GIVEN_UP
from storage.testing import SteppedWorkers, every_stop
from storage.transactions.values import TransactionState
from storage.writer import StoreWriter

SEEDS = int(os.environ.get("TRANSACTION_SEEDS", "1"))
BIG = b"x" * 300  # a copy takes a sector or two, so that a cut often leaves some of a commit


class Life:
    """What a producer was told, for what has to be there afterwards."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.ended: dict[str, TransactionState] = {}
        self.asked: set[str] = set()

    def work(self, disk: FileSystem) -> None:
        writer, clock = opened(disk, disk.root)  # type: ignore[attr-defined]
        writer.create_topic("orders", 2)
        for name, count in (("A", 3), ("B", 1), ("C", 2), ("E", 3), ("D", 1)):
            records = b"".join(
                message(b"%s%d" % (name.encode(), n) + BIG, f"{name}{n}", queue_id=n % 2)
                for n in range(count)
            )
            stored = writer.transactions.prepare(records, transaction_id=name)
            writer.wait_acknowledged(stored.end_commit_offset)
            self.stored.append(name)
        writer.transaction_checks.watch(["orders"], lambda _: None)
        self.end(writer, "A", commit=True)
        clock.pass_ms(6_000)
        writer.transaction_checks.step()  # stores B, C, E and D again
        self.end(writer, "B", commit=False)
        self.end(writer, "C", commit=True)
        clock.pass_ms(30_000)
        writer.transaction_checks.step()  # gives E and D up
        for name in ("later", "last"):  # steps in which that is not on the device
            writer.create_topic(name, 1)
        writer.close()

    def end(self, writer: StoreWriter, name: str, *, commit: bool) -> None:
        self.asked.add(name)
        (answer,), end = writer.transactions.end([name], commit=commit)
        writer.wait_acknowledged(end)
        self.ended[name] = answer.state


def opened(filesystem: FileSystem, root: Path) -> tuple[StoreWriter, HandClock]:
    clock = HandClock()
    config = small_config(flush_mode="sync", commit_log_file_size=1 << 17, transaction_check_max=1)
    writer = StoreWriter.open(
        root, config, filesystem=filesystem, clock=clock, workers=SteppedWorkers()
    )
    return writer, clock


def give_all_up(writer: StoreWriter, clock: HandClock) -> None:
    writer.transaction_checks.watch(["orders"], lambda _: None)
    for _ in range(3):
        clock.pass_ms(40_000)
        writer.transaction_checks.step()
    assert writer.transactions.pending() == []


def bodies(root: Path, topic: str = "orders") -> Counter[bytes]:
    return Counter(each.body[:2] for each in records_on_disk(root) if each.topic == topic)


SIZES = {"A": 3, "B": 1, "C": 2, "D": 1, "E": 3}


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_transaction_is_whole_or_not_there_and_has_one_copy(
    tmp_path: Path, kills: bool, seed: int
) -> None:
    lives: list[Life] = []

    def work(disk: FileSystem) -> None:
        lives.append(Life())
        lives[-1].work(disk)

    stops = 0
    for run in every_stop(
        tmp_path / "disk", work, kills=kills, seed=seed, step_stride=3 if ALL_STEPS else 13
    ):
        stops += 1
        life = lives[-1]
        writer, clock = opened(run.disk, run.disk.root)
        if "orders" not in {topic.name for topic in writer.list_topics()}:
            assert not life.stored
            continue
        pending = {each.transaction_id: each for each in writer.transactions.pending()}
        for name in life.stored:
            assert name in pending or name in life.asked or name in "DE", (
                f"step {run.step}: {name} is lost"
            )
        for name, found in pending.items():
            assert found.message_count == SIZES[name] or name not in life.stored
            assert name not in life.ended, f"step {run.step}: {name} is pending again"
        answers, end = writer.transactions.end(["A", "C"], commit=True)
        writer.wait_dispatched(end, 10)
        give_all_up(writer, clock)
        writer.close()
        copies = bodies(run.disk.root)
        given_up = bodies(run.disk.root, GIVEN_UP)
        assert not given_up or max(given_up.values()) == 1, f"step {run.step}: {given_up}"
        for name in {"D", "E"} & set(life.stored):
            count = sum(1 for body in given_up if body.startswith(name.encode()))
            assert count == SIZES[name], f"step {run.step}: {given_up}"
        assert not any(body.startswith((b"A", b"C")) for body in given_up)
        assert not copies or max(copies.values()) == 1, f"step {run.step}: {copies}"
        for answer in answers:
            name = answer.transaction_id
            count = sum(1 for body in copies if body.startswith(name.encode()))
            if answer.state == TransactionState.COMMITTED:
                assert count == SIZES[name] or name not in life.stored, f"step {run.step}: {copies}"
            else:
                assert name not in life.stored, f"step {run.step}: {name} {answer}"
        assert not any(body.startswith((b"B", b"D", b"E")) for body in copies)
    assert stops > 10


@pytest.mark.parametrize("copies", range(4))
def test_a_give_up_that_was_cut_short_is_completed(tmp_path: Path, copies: int) -> None:
    """So many of its three copies have survived, and nothing after them: none decides nothing."""
    store = HandStore(tmp_path / "store")
    names = ("one", "two", "three")
    store.prepare(*(message(name.encode(), name) for name in names), transaction_id="T")
    store.prepare(message(b"other", "O"), message(b"last", "L"))
    store.watch("orders")
    for _ in range(16):
        store.check(30_000)
        store.end("O", commit=False)
    assert store.pending() == []
    given_up = store.records(GIVEN_UP)
    assert [each.body for each in given_up] == [b"one", b"two", b"three", b"last"]
    stored = [*given_up[:3], store.records(OP)[-2]]
    store.cut_off(stored[copies].commit_offset + 40 if copies else stored[0].commit_offset)
    store.open()

    assert store.pending() == ["T", "L"]
    if copies:
        assert store.end("T", commit=True) == [("given up", 3, True)]
        with pytest.raises(InvalidMessage, match="has ended"):
            store.prepare(message(b"four", "four"), transaction_id="T")
        store.reopen()
    store.check(30_000)
    assert store.pending() == []
    assert store.bodies(GIVEN_UP) == [b"one", b"two", b"three", b"last"]
    assert store.bodies() == []
    store.close()


@pytest.mark.parametrize("copies", range(4))
def test_a_commit_that_was_cut_short_is_completed(tmp_path: Path, copies: int) -> None:
    """So many of its three copies have survived, and nothing after them: none decides nothing."""
    store = HandStore(tmp_path / "store")
    names = ("one", "two", "three")
    sent = [message(name.encode(), name, queue_id=n % 2) for n, name in enumerate(names)]
    store.prepare(*sent, transaction_id="T")
    store.prepare(message(b"other", "O"))
    store.end("T", commit=True)
    stored = [*store.records("orders"), *store.records(OP)]
    store.cut_off(stored[copies].commit_offset + 40 if copies else stored[0].commit_offset)
    store.open()

    assert store.pending() == (["O"] if copies else ["T", "O"])
    expected = [("committed", 3, bool(copies))]
    assert store.end("T", commit=copies == 0) == expected
    assert sorted(store.bodies()) == sorted(name.encode() for name in names)
    assert store.end("O", commit=False) == [("rolled back", 1, False)]
    store.reopen()
    assert store.pending() == []
    assert sorted(store.bodies()) == sorted(name.encode() for name in names)
    store.close()


def test_a_half_stored_again_counts_once_where_its_removal_was_cut_off(tmp_path: Path) -> None:
    store = HandStore(tmp_path / "store")
    store.watch("orders")
    store.prepare(message(b"one", "A"))
    store.check(6_000)
    removal = store.records(OP)[-1]
    store.cut_off(removal.commit_offset)
    store.open()

    (pending,) = store.transactions.pending()
    assert (pending.message_count, pending.check_count) == (1, 1)
    assert store.end("A", commit=True) == [("committed", 1, False)]
    assert store.bodies() == [b"one"]
    store.reopen()
    assert store.pending() == []
    store.close()
