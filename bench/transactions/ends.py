"""Transactions over gRPC by one client process: the way to a consumer, and how many a second in batches.

The first is beside a message that is sent without one, the second beside batches of as many messages.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from typing import Any, Final

import grpc

from bench import drivers, produce
from bench.figures import Figure, show
from penstock.v1 import (
    reader_pb2,
    reader_pb2_grpc,
    transactions_pb2,
    transactions_pb2_grpc,
    writer_pb2,
    writer_pb2_grpc,
)
from services import loops
from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch

TOPIC: Final = "transactions"
BODY: Final = bytes(200)
BATCH: Final = 256  # transactions of one call
IN_FLIGHT: Final = 4
ONE_BY_ONE: Final = 300  # of a round
IN_BATCHES: Final = 10_240  # of a round
PATIENCE_S: Final = 20.0
WANTED_MS: Final = 20.0
WANTED: Final = 10_000.0


class TransactionBench:
    """Stubs, and unique keys that nobody has used."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self.transactions = drivers.stub(transactions_pb2_grpc.TransactionsStub, writer)
        self.writer = drivers.stub(writer_pb2_grpc.WriterStub, writer)
        self.reader = drivers.stub(reader_pb2_grpc.ReaderStub, reader)
        self._numbers = itertools.count()
        self._stored = 0  # messages in the queue

    def records(self, count: int) -> tuple[bytes, list[str]]:
        """Return encoded records, each with a unique key, and the keys."""
        keys = [f"{next(self._numbers):032X}" for _ in range(count)]
        blocks = (encode_properties({"UNIQ_KEY": key, "TAGS": "new"}) for key in keys)
        records = [
            encode_for_batch(TOPIC, 0, BODY, block, 0, 0, 1_700_000_000_000, "127.0.0.1:1")
            for block in blocks
        ]
        return b"".join(records), keys

    async def transaction(self, count: int) -> None:
        """Store and commit so many transactions, of a message each."""
        records, keys = self.records(count)
        await self.transactions.Prepare(transactions_pb2.PrepareRequest(records=records))
        answer = await self.transactions.EndTransactions(
            transactions_pb2.EndTransactionsRequest(
                transaction_ids=keys, resolution=transactions_pb2.RESOLUTION_COMMIT
            )
        )
        if any(
            each.state != transactions_pb2.TRANSACTION_COMMITTED for each in answer.transactions
        ):
            raise RuntimeError("a transaction was not committed")
        self._stored += count

    async def batch(self, count: int) -> None:
        """Store as many messages without transactions."""
        records, _ = self.records(count)
        await self.writer.ProduceBatch(writer_pb2.ProduceBatchRequest(records=records))
        self._stored += count

    async def seen(self) -> None:
        """Wait until a consumer has the last message; the first answers may be that the queue is shorter."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            pulled = await self.reader.Pull(
                reader_pb2.PullRequest(
                    topic=TOPIC, queue_offset=self._stored - 1, max_messages=1, wait_ms=1_000
                )
            )
            if pulled.record_count == 1:
                return
        raise RuntimeError("the message did not come")

    async def p99_ms(self, send: Any) -> float:
        """Return the 99th percentile of one message's way to a consumer, one after the other."""
        times = []
        for _ in range(ONE_BY_ONE):
            began = time.perf_counter()
            await send(1)
            await self.seen()
            times.append((time.perf_counter() - began) * 1e3)
        return sorted(times)[int(ONE_BY_ONE * 0.99)]

    async def per_second(self, send: Any) -> float:
        """Return how many a second in batches, some of them at once, until a consumer has the last."""
        left = IN_BATCHES // BATCH

        async def member() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await send(BATCH)

        began = time.perf_counter()
        await asyncio.gather(*(member() for _ in range(IN_FLIGHT)))
        await self.seen()
        return IN_BATCHES / (time.perf_counter() - began)


async def measure(writer: str, reader: str, *, rounds: int) -> list[Figure]:
    """Time both, each beside its control."""
    async with (
        grpc.aio.insecure_channel(writer, drivers.CLIENT_OPTIONS) as ours,
        grpc.aio.insecure_channel(reader, drivers.CLIENT_OPTIONS) as reading,
    ):
        bench = TransactionBench(ours, reading)
        await bench.writer.CreateTopic(writer_pb2.CreateTopicRequest(name=TOPIC, queue_count=1))
        await bench.transaction(1)  # makes the topics of half messages
        ways, rates = [], []
        for number in range(rounds + 1):
            way = await bench.p99_ms(bench.transaction), await bench.p99_ms(bench.batch)
            rate = await bench.per_second(bench.transaction), await bench.per_second(bench.batch)
            if number:  # the first round does not count
                ways.append(way)
                rates.append(rate)
    p99, plain = (statistics.median(each) for each in zip(*ways, strict=True))
    reached, bound = (statistics.median(each) for each in zip(*rates, strict=True))
    return [
        Figure(
            name="transaction: half, commit, visible, p99",
            value=p99, unit="ms", limit=plain, limit_name="message, visible", ratio=p99 / plain,
            wanted=f"{WANTED_MS:.0f} ms", reached=p99 <= WANTED_MS, rounds=ways,
        ),
        Figure(
            name=f"transactions of one message, {BATCH} a call, until all are visible",
            value=reached, unit="transactions/s", limit=bound, limit_name="batches of messages",
            ratio=reached / bound, wanted=f"{WANTED:.0f}/s", reached=reached >= WANTED,
            rounds=rates,
        ),
    ]  # fmt: skip


def run(*, rounds: int) -> list[Figure]:
    """Start a writer and a reader, and time them."""
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store, *produce.COLD) as (writer, _),
        drivers.service("reader", store) as (reader, _),
    ):  # fmt: skip
        return loops.run(measure(writer, reader, rounds=rounds))


if __name__ == "__main__":
    show(run(rounds=drivers.rounds_given()))
