"""Transactions of both clients: seen after the commit, never after a rollback, asked about when nobody ended them."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest
from real_processes import until
from three_services import ThreeServices, three_services

from penstock import (
    Client,
    DeadlineExceeded,
    TransactionCheck,
    TransactionRefused,
)

PATIENCE_S = 30.0


@pytest.fixture(scope="module", name="services")
def _services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(
        tmp_path_factory.mktemp("store"),
        transaction_timeout_ms=100,
        transaction_check_interval_ms=200,
        transaction_check_max=100_000,
    ) as services:
        yield services


def bodies(client: Client, topic: str) -> list[bytes]:
    return sorted(record.body for record in client.consume(topic, follow=False))


def wait_until_decided(client: Client, topic: str) -> None:
    until(
        lambda: all(topic not in each.topics for each in client.pending_transactions()), PATIENCE_S
    )


def test_what_is_sent_in_a_transaction_is_seen_after_it(client: Client, topic: str) -> None:
    with client.transaction(topic) as transaction:
        keys = [transaction.send(b"%d" % n, keys=["k"], tag="t") for n in range(5)]
        assert bodies(client, topic) == []
        assert transaction.transaction_id in {
            each.transaction_id for each in client.pending_transactions()
        }
    client.produce(topic, b"last")  # after the commit; seen with it or later
    assert bodies(client, topic) == [b"%d" % n for n in range(5)] + [b"last"]
    found = [r for r in client.consume(topic, follow=False) if r.body != b"last"]
    assert {record.unique_key for record in found} == set(keys)
    assert {(record.tag, record.keys) for record in found} == {("t", ("k",))}
    assert len({record.queue_id for record in found}) == 4


def test_an_exception_rolls_back(client: Client, topic: str) -> None:
    with pytest.raises(ZeroDivisionError), client.transaction(topic) as transaction:
        transaction.send(b"never")
        _ = 1 // 0
    assert transaction.rollback() is not None  # again: the first answer
    with pytest.raises(TransactionRefused) as refused:
        transaction.commit()
    assert refused.value.state == "rolled back"
    client.produce(topic, b"last")
    assert bodies(client, topic) == [b"last"]


@pytest.fixture(name="losing")
def _losing(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """One item for each call to come: whether its answer is lost."""
    losing: list[bool] = []
    send = client._send

    async def lossy(*arguments: Any, **options: Any) -> Any:
        result = await send(*arguments, **options)
        if losing and losing.pop(0):
            raise DeadlineExceeded("no answer in time")
        return result

    monkeypatch.setattr(client, "_send", lossy)
    yield losing
    monkeypatch.setattr(client, "_send", send)


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_stored_without_an_answer_ends_with_its_transaction(
    client: Client, topic: str, losing: list[bool], commit: bool
) -> None:
    transaction = client.transaction(topic)
    losing.append(True)
    with pytest.raises(DeadlineExceeded):
        transaction.send(b"one", queue_id=0)
    ended = transaction.commit() if commit else transaction.rollback()
    assert ended is not None
    assert ended.message_count == 1
    client.produce(topic, b"zz", queue_id=0)
    assert bodies(client, topic) == ([b"one"] if commit else []) + [b"zz"]


def test_a_checker_decides_about_what_another_producer_left(client: Client, topic: str) -> None:
    for number in range(3):
        client.transaction(topic, transaction_id=f"{topic}-{number}").send(b"%d" % number)
    asked: queue.Queue[str] = queue.Queue()

    def checker(check: TransactionCheck) -> bool | None:
        asked.put(check.transaction_id)
        (record,) = check.records
        assert check.topics == (topic,)
        if check.transaction_id.endswith("2") and check.check_count < 2:
            return None
        return record.body != b"1"

    with client.transaction_checker([topic], checker):
        wait_until_decided(client, topic)
    decided = [asked.get() for _ in range(asked.qsize())]
    assert set(decided) == {f"{topic}-0", f"{topic}-1", f"{topic}-2"}
    assert decided.count(f"{topic}-2") >= 2
    assert bodies(client, topic) == [b"0", b"2"]
