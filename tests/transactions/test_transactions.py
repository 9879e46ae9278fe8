"""Half messages are a broker's, consumers see them after a commit only, and each has one copy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from full_filesystem import full
from hand_store import HALF, OP, HandStore, message

from storage.engine.appender import Appender
from storage.errors import (
    InvalidBatch,
    InvalidMessage,
    QueueNotFound,
    StoreBusy,
    StoreFull,
    TopicNotFound,
    TransactionExists,
)  # fmt: skip
from storage.format.properties import decode_properties
from storage.transactions import transactions
from storage.transactions.log_access import TransactionLog

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


def test_a_half_message_is_stored_as_a_broker_stores_it(store: HandStore) -> None:
    sent = message(b"one", "AB", queue_id=3, TAGS="paid", KEYS="k1")
    assert store.prepare(sent) == ("AB",)
    (half,) = store.records(HALF)
    assert (half.queue_id, half.queue_offset, half.sys_flag, half.body) == (0, 0, 0, b"one")
    assert (half.prepared_transaction_offset, half.reconsume_times) == (0, 0)
    assert (half.born_timestamp_ms, half.born_host) == (1_000, "10.0.0.1:5")
    properties = dict(half.properties)
    properties.pop("__CRC32#")
    assert properties == {
        "UNIQ_KEY": "AB", "KEYS": "k1", "TAGS": "paid", "TRAN_MSG": "true", "PGROUP": "orders",
        "__transactionId__": "AB", "REAL_TOPIC": "orders", "REAL_QID": "3",
    }  # fmt: skip
    assert store.bodies() == []


def test_a_commit_stores_a_copy_where_the_message_was_for_and_names_its_half(
    store: HandStore,
) -> None:
    store.prepare(message(b"zero", "AA"), message(b"one", "AB", queue_id=3))
    assert store.end("AB", commit=True) == [("committed", 1, False)]
    (copy,) = store.records("orders")
    half = store.records(HALF)[1]
    assert (copy.queue_id, copy.queue_offset, copy.body) == (3, 0, b"one")
    assert (copy.sys_flag, copy.prepared_transaction_offset) == (8, half.commit_offset)
    own = {"__CRC32#": ""}
    assert dict(copy.properties) | own == dict(half.properties) | own
    (removal,) = store.records(OP)
    assert (removal.body, removal.queue_id, removal.sys_flag) == (b"1,", 0, 0)
    assert decode_properties(removal.properties_block)["TAGS"] == "d"


def test_a_rollback_stores_no_copy(store: HandStore) -> None:
    store.prepare(message(b"one", "AB"))
    assert store.end("AB", commit=False) == [("rolled back", 1, False)]
    assert store.bodies() == []
    assert [each.body for each in store.records(OP)] == [b"0,"]
    assert store.pending() == []


def test_all_messages_of_a_transaction_are_committed_in_one_batch(store: HandStore) -> None:
    """What is between two of them in the log would be seen between them."""
    store.writer.create_topic("bills", 1)
    store.prepare(message(b"one", "A1"), message(b"two", "A2", queue_id=1), transaction_id="T")
    store.prepare(message(b"three", "A3", topic="bills"), transaction_id="T")
    (pending,) = store.transactions.pending()
    assert (pending.transaction_id, pending.message_count) == ("T", 3)
    assert pending.topics == ("orders", "bills")
    assert store.end("T", commit=True) == [("committed", 3, False)]
    copies = store.records("orders") + store.records("bills")
    assert [each.body for each in copies] == [b"one", b"two", b"three"]
    first, second, third = (each.commit_offset for each in copies)
    sizes = [each.total_size for each in copies]
    assert (second - first, third - second) == (sizes[0], sizes[1])
    assert [each.body for each in store.records(OP)] == [b"0,1,2,"]


def test_who_ends_a_transaction_again_gets_the_first_answer(store: HandStore) -> None:
    store.prepare(message(b"one", "A"), message(b"two", "B"))
    store.end("A", commit=True)
    store.end("B", commit=False)
    for _ in range(3):
        assert store.end("A", commit=True) == [("committed", 1, True)]
        assert store.end("A", commit=False) == [("committed", 1, True)]
        assert store.end("B", commit=True) == [("rolled back", 1, True)]
        store.reopen()
    assert store.bodies() == [b"one"]


def test_an_unknown_id_and_a_foreign_topic_have_their_own_answers(store: HandStore) -> None:
    store.prepare(message(b"one", "A"))
    assert store.end("nobody's", commit=True) == [("not found", 0, False)]
    assert store.end("A", commit=True, topic="bills") == [("other topic", 1, False)]
    assert store.end("A", "A", commit=True, topic="orders") == [("committed", 1, False)] * 2
    assert store.bodies() == [b"one"]


def test_a_half_that_is_sent_again_is_stored_once(store: HandStore) -> None:
    """Its first answer may have been lost."""
    stored = store.transactions.prepare(message(b"one", "A"), transaction_id="T")
    again = store.transactions.prepare(
        message(b"one", "A") + message(b"two", "B"), transaction_id="T"
    )
    assert (stored.queue_offsets, again.queue_offsets) == ((0,), (0, 1))
    store.end("T", commit=True)
    assert store.bodies() == [b"one", b"two"]
    with pytest.raises(InvalidMessage, match="has ended"):
        store.prepare(message(b"three", "C"), transaction_id="T")


@pytest.mark.parametrize("restarts", [False, True])
def test_another_body_under_a_pending_key_is_refused_and_nothing_is_stored(
    store: HandStore, restarts: bool
) -> None:
    """It would be lost without a word: the transaction has the body that came first."""
    store.prepare(message(b"first", "T-0"), message(b"second", "T-1"), transaction_id="T")
    if restarts:
        store.kill()
    with pytest.raises(InvalidBatch, match="another message with its UNIQ_KEY") as refused:
        store.prepare(message(b"new", "T-2"), message(b"other", "T-0"), transaction_id="T")
    assert refused.value.record_index == 1
    store.end("T", commit=True)
    assert store.bodies() == [b"first", b"second"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_second_run_of_a_producer_has_no_part_in_the_first_runs_transaction(
    store: HandStore, restarts: bool
) -> None:
    def send(number: int, run: str) -> None:
        key = f"T-{run}-{number}"
        store.transactions.prepare(
            message(b"%d" % number, key), transaction_id="T", key_prefix=f"T-{run}-"
        )

    for number in (0, 1, 0):
        send(number, "A")
    if restarts:
        store.kill()
    with pytest.raises(TransactionExists, match="'T' has pending messages of another run"):
        send(0, "B")
    with pytest.raises(InvalidBatch, match="key_prefix"):
        store.transactions.prepare(message(b"2", "T-2"), transaction_id="T", key_prefix="T-A-")
    send(2, "A")
    assert store.end("T", commit=True) == [("committed", 3, False)]
    assert store.bodies() == [b"0", b"1", b"2"]


def test_what_cannot_be_a_message_of_a_transaction_is_refused(store: HandStore) -> None:
    with pytest.raises(InvalidBatch, match="UNIQ_KEY"):
        store.prepare(message(b"one", ""))
    with pytest.raises(TopicNotFound):
        store.prepare(message(b"one", "A", topic="nowhere"))
    with pytest.raises(QueueNotFound):
        store.prepare(message(b"one", "A", queue_id=4))
    with pytest.raises(InvalidBatch, match="too long"):
        store.prepare(message(b"one", "A", much="x" * 32_680))
    with pytest.raises(InvalidMessage, match="transaction_id"):
        store.prepare(message(b"one", "A"), transaction_id="T" * 256)
    with pytest.raises(InvalidBatch, match="same UNIQ_KEY"):
        store.prepare(message(b"one", "A"), message(b"two", "A"), transaction_id="T")
    assert store.records(HALF) == []


def test_more_pending_halves_than_there_may_be_are_refused_until_some_end(tmp_path: Path) -> None:
    store = HandStore(tmp_path / "few", transaction_pending_max=3)
    store.prepare(message(b"one", "A"), message(b"two", "B"))
    with pytest.raises(StoreBusy, match="2 half messages are pending, of 3 at most"):
        store.prepare(message(b"three", "C"), message(b"four", "D"))
    store.prepare(message(b"one", "A"), message(b"three", "C"))  # one of them is stored already
    with pytest.raises(StoreBusy):
        store.prepare(message(b"four", "D"))
    store.end("A", commit=True)
    store.prepare(message(b"four", "D"))
    assert store.pending() == ["B", "C", "D"]
    store.close()


@pytest.mark.parametrize("how", ["reopen", "kill"])
def test_pending_transactions_outlast_the_writer(store: HandStore, how: str) -> None:
    store.prepare(message(b"one", "A"), message(b"two", "B"), message(b"three", "C"))
    store.prepare(message(b"four", "D1"), message(b"five", "D2"), transaction_id="D")
    store.end("B", commit=True)
    getattr(store, how)()
    assert store.pending() == ["A", "C", "D"]
    assert store.end("D", "B", commit=True) == [("committed", 2, False), ("committed", 1, True)]
    getattr(store, how)()
    assert store.pending() == ["A", "C"]
    assert store.bodies() == [b"two", b"four", b"five"]


def test_a_producer_is_asked_by_a_brokers_rules(store: HandStore) -> None:
    """After 6 s, then each 30 s; the half is stored again with its count, and its old one is removed."""
    store.watch("orders")
    store.prepare(message(b"one", "A"))
    store.check(5_999)
    assert store.asked == []
    store.check(1)
    store.check(29_999)
    assert [each.check_count for each in store.asked] == [1]
    store.check(1)
    assert [each.check_count for each in store.asked] == [1, 2]
    halves = store.records(HALF)
    assert [each.properties.get("TRANSACTION_CHECK_TIMES") for each in halves] == [None, "1", "2"]
    assert [each.body for each in store.records(OP)] == [b"0,", b"1,"]
    assert store.end("A", commit=True) == [("committed", 1, False)]
    (copy,) = store.records("orders")
    assert copy.prepared_transaction_offset == halves[2].commit_offset


def test_after_the_last_check_a_half_is_given_up(store: HandStore) -> None:
    store.watch("orders")
    store.prepare(message(b"one", "A"))
    for _ in range(16):
        store.check(30_000)
    assert [each.check_count for each in store.asked] == list(range(1, 16))
    (given_up,) = store.records(GIVEN_UP)
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert store.end("A", commit=True) == [("given up", 1, True)]
    store.reopen()
    assert store.pending() == []
    assert store.end("A", commit=True) == [("given up", 1, True)]


def test_a_half_that_is_too_old_is_given_up(store: HandStore) -> None:
    """Without anybody to ask it waits as long as 15 checks take: its age may be that of a stopped writer."""
    store.prepare(message(b"one", "A"))
    store.check(72 * 3_600_000 + 1)
    for _ in range(14):
        store.check(30_000)
    assert store.pending() == ["A"]
    store.check(30_000)
    assert store.pending() == []
    assert [each.body for each in store.records(GIVEN_UP)] == [b"one"]


def test_a_clock_that_is_set_forward_gives_up_nothing_before_it_was_asked(
    store: HandStore,
) -> None:
    store.prepare(message(b"one", "A"), message(b"two", "B"))
    store.reopen()
    store.watch("orders")
    store.check(365 * 86_400_000)
    assert [each.transaction_id for each in store.asked] == ["A", "B"]
    assert store.end("A", commit=True) == [("committed", 1, False)]
    store.check(29_999)
    assert store.pending() == ["B"]
    store.check(1)
    assert store.pending() == []
    assert [each.body for each in store.records(GIVEN_UP)] == [b"two"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_back_by_a_day_delays_no_question(
    store: HandStore, restarts: bool
) -> None:
    store.watch("orders")
    store.prepare(message(b"one", "A"), message(b"two", "B", CHECK_IMMUNITY_TIME_IN_SECONDS="60"))
    store.check(1_000)
    store.clock.pass_ms(-86_400_000)
    if restarts:
        store.reopen()
        store.watch("orders")
    store.check()
    assert store.asked == []
    store.check(6_000)
    assert [each.transaction_id for each in store.asked] == ["A"]
    store.check(60_000)
    assert sorted(each.transaction_id for each in store.asked) == ["A", "A", "B"]
    assert store.end("A", "B", commit=True) == [("committed", 1, False)] * 2


def test_on_a_full_disk_nothing_ends_by_half_and_the_same_call_does_it_later(
    store: HandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.watch("orders")
    store.prepare(message(b"one", "A"), message(b"two", "B"), transaction_id="T")
    store.prepare(message(b"three", "C"))

    with monkeypatch.context() as patch:
        patch.setattr(Appender, "append", full)
        for commit in (True, False):
            with pytest.raises(StoreFull):
                store.end("T", commit=commit)
        with pytest.raises(StoreFull):
            store.prepare(message(b"four", "D"))
        store.check(6_000)
        assert "no space left" in store.writer.status().problem
    assert store.pending() == ["T", "C"]
    assert store.end("T", commit=True) == [("committed", 2, False)]
    assert store.end("C", commit=False) == [("rolled back", 1, False)]
    store.check()
    assert store.writer.status().problem == ""
    store.reopen()
    assert store.pending() == []
    assert store.bodies() == [b"one", b"two"]


@pytest.mark.parametrize("error", [TopicNotFound("orders"), OSError(5, "Input/output error")])
def test_what_goes_wrong_with_one_transaction_is_said_and_keeps_no_other_from_its_check(
    store: HandStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store.watch("orders")
    store.prepare(message(b"one", "A"), message(b"two", "B"))
    append = TransactionLog.append
    fails = [True]

    def failing(log: TransactionLog, copies: Any, *args: Any) -> Any:
        if fails and b"one" in copies.tobytes():
            raise error
        return append(log, copies, *args)

    monkeypatch.setattr(TransactionLog, "append", failing)
    store.check(6_000)
    assert store.writer.status().problem == f"transaction A: {error}"
    assert store.writer.status().writable
    fails.clear()
    store.check(30_000)
    assert [(each.transaction_id, each.check_count) for each in store.asked] == [
        ("A", 1), ("B", 1), ("A", 1), ("B", 2),
    ]  # fmt: skip
    assert store.writer.status().problem == ""


def test_immunity_is_what_the_message_says(store: HandStore) -> None:
    store.watch("orders")
    store.prepare(message(b"one", "A", CHECK_IMMUNITY_TIME_IN_SECONDS="60"), message(b"two", "B"))
    store.transactions.prepare(message(b"three", "C"), immunity_s=20)
    store.check(6_000)
    assert [each.transaction_id for each in store.asked] == ["B"]
    store.check(14_000)
    assert [each.transaction_id for each in store.asked] == ["B", "C"]
    store.reopen()
    store.watch("orders")
    store.check(40_000)
    assert "A" in {each.transaction_id for each in store.asked}


def test_transactions_of_a_deleted_topic_cannot_be_committed_and_go_with_the_next_check(
    store: HandStore,
) -> None:
    store.prepare(message(b"one", "A"), message(b"two", "B"))
    store.writer.delete_topic("orders")
    store.writer.create_topic("orders", 4)
    store.prepare(message(b"three", "C"))
    assert store.end("A", commit=True) == [("topic gone", 1, False)]
    assert store.end("B", commit=False) == [("rolled back", 1, False)]
    store.check(6_000)
    assert store.pending() == ["C"]
    store.end("C", commit=True)
    assert store.bodies() == [b"three"]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_does_not_go_between_the_look_at_it_and_the_commit(
    store: HandStore, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    """Made again, it would get the messages of the one before; gone, it would refuse the whole batch."""
    store.writer.create_topic("bills", 1)
    store.prepare(message(b"one", "A"), message(b"two", "B", topic="bills"))
    made = transactions.committed_copies

    def change() -> None:
        store.writer.delete_topic("orders")
        if is_made_again:
            store.writer.create_topic("orders", 4)

    changing = threading.Thread(target=change)

    def copies_while_it_changes(*args: Any) -> Any:
        changing.start()
        changing.join(0.2)
        return made(*args)

    monkeypatch.setattr(transactions, "committed_copies", copies_while_it_changes)
    assert store.end("A", "B", commit=True) == [("committed", 1, False)] * 2
    changing.join()
    store.workers.settle()
    assert store.writer._engine.queues.known("orders", 0) is None
    assert store.bodies("bills") == [b"two"]


def test_a_question_that_reached_nobody_does_not_count(store: HandStore) -> None:
    """It is asked again after the interval, or soon when another one watches."""
    store.prepare(message(b"one", "A"))
    store.watch("orders")
    store.check(6_000)
    store.checks.uncount("A", 1)
    store.checks.uncount("A", 1)  # again, and of what is not pending: nothing
    store.checks.uncount("B", 1)
    store.check(30_000)
    store.checks.uncount("A", 2)  # not this one
    assert [each.check_count for each in store.asked] == [1, 1]
    store.checks.uncount("A", 1)
    store.watch("orders")
    store.check()
    assert [each.check_count for each in store.asked] == [1, 1, 1]


def test_no_immunity_is_longer_than_a_half_may_grow_old(store: HandStore) -> None:
    """It would hold the log for as long as a producer likes."""
    store.transactions.prepare(message(b"one", "A"), immunity_s=900_000_000)
    store.prepare(message(b"two", "B", CHECK_IMMUNITY_TIME_IN_SECONDS="900000000"))
    store.kill()
    store.prepare(message(b"three", "C", CHECK_IMMUNITY_TIME_IN_SECONDS="900000000"))
    store.check(72 * 3_600_000)
    for _ in range(16):
        store.check(30_000)
    assert store.pending() == []
    assert sorted(store.bodies(GIVEN_UP)) == [b"one", b"three", b"two"]


def test_a_damaged_half_is_given_up_when_it_is_too_old_and_its_loss_is_named(
    store: HandStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then its file may come back from a backup. It holds the log no longer than others."""
    store.prepare(message(b"one", "A"), message(b"two", "B"), transaction_id="T")
    store.workers.settle()
    half = store.records(HALF)[0]
    store.flip(half.commit_offset + 90)
    store.watch("orders")
    for _ in range(20):
        store.check(30_000)
    assert store.pending() == ["T"]
    assert f"commit offset {half.commit_offset}" in store.checks.problem
    store.clock.pass_ms(72 * 3_600_000)
    for _ in range(16):
        store.check(30_000)
    assert (store.pending(), store.asked, store.checks.problem) == ([], [], "")
    assert (
        f"of transaction T is lost: the half message at commit offset {half.commit_offset}:"
        in caplog.text
    )
    store.workers.settle()
    queue = store.writer._engine.queues.known(GIVEN_UP, 0)
    assert queue is not None
    assert queue.next_offset == 1  # the other message
    assert store.transactions.needed_offset() is None
    assert store.end("T", commit=True) == [("given up", 2, True)]


def test_a_question_that_could_not_be_passed_on_does_not_count(store: HandStore) -> None:
    store.prepare(message(b"one", "A"))
    number = store.checks.watch(["orders"], lambda _: False)
    for _ in range(20):
        store.check(30_000)
    assert len(store.records(HALF)) == 1
    store.checks.unwatch(number)
    store.watch("orders")
    store.check()
    assert [each.check_count for each in store.asked] == [1]
