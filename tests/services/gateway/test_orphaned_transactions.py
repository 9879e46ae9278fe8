"""Checks go on being passed to producers whatever one of them holds; topics are watched while somebody names them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from engine_store import record

from penstock.v1 import transactions_pb2
from services.gateway import producer_stream
from services.gateway.producer_stream import ProducerStream
from services.gateway.telemetry import TelemetryStreams
from services.gateway.transactions import OrphanedTransactions
from services.gateway.v2 import service_pb2

NO_RECORD = transactions_pb2.TransactionCheck(transaction_id="t", message_count=1)


class CheckingOnce:
    """A writer that sends one check, then notes that another one is waited for."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.goes_on = asyncio.Event()

    async def answers(self, _path: str, _request: Any) -> AsyncIterator[bytes]:
        yield self.answer
        self.goes_on.set()
        await asyncio.Event().wait()


def check(transaction_id: str, topic: str = "orders") -> bytes:
    """Return a check of a transaction of one message, its third."""
    half = record(properties={"REAL_TOPIC": topic, "UNIQ_KEY": transaction_id})
    return transactions_pb2.TransactionCheck(
        transaction_id=transaction_id, check_count=3, message_count=1, records=half
    ).SerializeToString()


class Checking:
    """A writer whose checks the test sends; it notes what is watched and what is given back."""

    def __init__(self) -> None:
        self.checks: asyncio.Queue[bytes] = asyncio.Queue()
        self.watched: list[str] = []
        self.returned: dict[str, int] = {}

    async def answers(self, _path: str, request: Any) -> AsyncIterator[bytes]:
        self.watched += request.topics
        while True:
            yield await self.checks.get()

    async def call(self, path: str, request: Any, **_: Any) -> bytes:
        assert path.endswith("/ReturnChecks")
        self.returned |= {each.transaction_id: each.check_count for each in request.checks}
        return b""


class Connection:
    """What a producer's stream writes to."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.told: list[str] = []

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        command = service_pb2.TelemetryCommand.FromString(data)
        self.told.append(command.recover_orphaned_transaction_command.transaction_id)


class Watching:
    """Transactions that are watched for streams of producers of ``orders``."""

    def __init__(self, *connections: Connection) -> None:
        self.writer, self.telemetry = Checking(), streams()
        self.streams = [ProducerStream(cast("Any", each)) for each in connections]
        for number, stream in enumerate(self.streams):
            self.telemetry.publishes(f"client {number}", stream, frozenset(["orders"]))
        self.orphaned = OrphanedTransactions(cast("Any", self.writer), self.telemetry)

    async def __aenter__(self) -> Watching:
        self.orphaned.tick()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.orphaned.close()

    def send(self, *transaction_ids: str) -> None:
        for each in transaction_ids:
            self.writer.checks.put_nowait(check(each))


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


def streams() -> TelemetryStreams:
    nothing = cast("Any", None)
    return TelemetryStreams(nothing, nothing, asyncio.Event(), most=1, body_bytes_max=1)


@pytest.mark.parametrize("answer", [b"no check", NO_RECORD.SerializeToString()])
async def test_a_check_that_cannot_be_read_ends_no_other(answer: bytes) -> None:
    telemetry, writer = streams(), CheckingOnce(answer)
    telemetry.publishes("client", ProducerStream(cast("Any", None)), frozenset(["orders"]))
    orphaned = OrphanedTransactions(cast("Any", writer), telemetry)

    orphaned.tick()
    await asyncio.wait_for(writer.goes_on.wait(), 5)

    await orphaned.close()


async def test_a_check_is_for_the_producers_of_its_topic_and_looks_at_no_others() -> None:
    class Unasked(frozenset[str]):
        def __contains__(self, topic: object) -> bool:
            raise AssertionError(topic)

    telemetry = streams()
    of_orders, of_bills, of_both = (ProducerStream(cast("Any", None)) for _ in range(3))

    telemetry.publishes("a", of_orders, Unasked(["orders"]))
    telemetry.publishes("b", of_bills, Unasked(["bills"]))
    telemetry.publishes("c", of_both, Unasked(["orders", "bills"]))

    assert telemetry.producers_of("orders") == [of_orders, of_both]
    assert telemetry.producers_of("bills") == [of_bills, of_both]
    telemetry.publishes("a", of_orders, frozenset(["bills"]))
    telemetry.ended("b", of_bills)
    assert telemetry.producers_of("orders") == [of_both]
    assert telemetry.producers_of("bills") == [of_both, of_orders]


async def test_checks_are_spread_over_the_producers_of_a_topic() -> None:
    connections = [Connection() for _ in range(3)]
    async with Watching(*connections) as watching:
        watching.send(*map(str, range(6)))
        await until(lambda: sum(len(each.told) for each in connections) == 6)
    assert [len(each.told) for each in connections] == [2, 2, 2]


async def test_what_waits_for_one_stream_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_stream, "WAITING_BYTES_MAX", 1)
    silent = Connection()
    silent.reads.clear()
    async with Watching(silent) as watching:
        watching.send("A", "B")
        await until(lambda: watching.writer.returned == {"B": 3})
        silent.reads.set()
        await until(lambda: silent.told == ["A"])


async def test_a_topic_is_published_while_a_producer_names_it() -> None:
    telemetry = streams()
    first, second = (ProducerStream(cast("Any", None)) for _ in range(2))

    telemetry.publishes("a", first, frozenset(["orders", "bills"]))
    telemetry.publishes("b", second, frozenset(["orders"]))
    both = telemetry.published_topics()
    telemetry.publishes("a", first, frozenset(["bills"]))
    same = telemetry.published_topics()
    again = ProducerStream(cast("Any", None))
    telemetry.publishes("b", again, frozenset(["bills"]))
    telemetry.ended("b", second)
    last = telemetry.published_topics()
    telemetry.ended("b", again)
    telemetry.ended("a", first)

    assert both is same
    assert (both, last) == ({"orders", "bills"}, {"bills"})
    assert telemetry.published_topics() == frozenset()
