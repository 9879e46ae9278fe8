"""A question that a stream has no room for does not count as asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock.v1 import transactions_pb2 as pb
from services.rpc.status import InvalidArgument
from services.writer import transactions
from services.writer.transactions import TransactionServicer
from storage.transactions.checks import Ask
from storage.transactions.values import TransactionCheck

CHECK = TransactionCheck("T", ("orders",), 1, (b"half",))


class Store:
    """Has the question's way to a stream for the test."""

    def __init__(self) -> None:
        self.watched = asyncio.Event()
        self.unwatched = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def watch(self, topics: Sequence[str], ask: Ask) -> int:
        self.topics, self.ask = topics, ask
        self._loop.call_soon_threadsafe(self.watched.set)
        return 7

    def unwatch(self, number: int) -> None:
        assert number == 7
        self._loop.call_soon_threadsafe(self.unwatched.set)


class Stream:
    """A caller that reads when the test says so."""

    def __init__(self) -> None:
        self.may_write = asyncio.Event()
        self.written: list[pb.TransactionCheck] = []

    async def send_initial_metadata(self, _metadata: object) -> None:
        """Be open."""

    async def write(self, answer: bytes) -> None:
        await self.may_write.wait()
        self.written.append(pb.TransactionCheck.FromString(answer))


@pytest.mark.parametrize(
    ("bound", "most"),
    [("CHECKS_WAITING_MAX", 3), ("CHECKS_BYTES_MAX", 3 * sum(map(len, CHECK.halves)))],
)
async def test_a_caller_that_does_not_read_is_not_asked_more_than_it_has_room_for(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check has all records of its transaction, up to 64 MiB."""
    monkeypatch.setattr(transactions, bound, most)
    store, stream = Store(), Stream()
    servicer = TransactionServicer(
        cast("Any", None), cast("Any", store), cast("Any", None), asyncio.Event()
    )
    request = pb.WatchChecksRequest(topics=["orders"])
    call = asyncio.ensure_future(servicer.watch_checks(request, cast("Any", stream)))
    async with asyncio.timeout(30):
        await store.watched.wait()
        asked = [await asyncio.to_thread(store.ask, CHECK) for _ in range(8)]
        assert asked[:3] == [True] * 3
        taken = sum(bool(each) for each in asked)
        assert taken <= 4  # one may be on its way to the caller
        stream.may_write.set()
        while len(stream.written) < taken:
            await asyncio.sleep(0)
        assert await asyncio.to_thread(store.ask, CHECK)
        call.cancel()
        await store.unwatched.wait()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert {each.transaction_id for each in stream.written} == {"T"}


async def test_too_many_topics_are_refused() -> None:
    servicer = TransactionServicer(
        cast("Any", None), cast("Any", Store()), cast("Any", None), asyncio.Event()
    )
    request = pb.WatchChecksRequest(topics=["t"] * (transactions.TOPICS_MAX + 1))
    with pytest.raises(InvalidArgument):
        await servicer.watch_checks(request, cast("Any", None))


async def test_a_request_to_store_that_takes_long_to_parse_is_refused() -> None:
    """Fields that come again and again, each of which counts until the next one."""
    servicer = TransactionServicer(
        cast("Any", None), cast("Any", None), cast("Any", None), asyncio.Event()
    )
    wordy = pb.PrepareRequest(records=b"a", transaction_id="T").SerializeToString() * 1_000_000
    with pytest.raises(InvalidArgument, match="again and again"):
        await servicer.prepare(wordy, cast("Any", None))
