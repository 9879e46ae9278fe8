"""Subscriptions of one client process: messages received, iterated over and acknowledged.

The control makes the same calls with answers and requests of the same sizes, and does nothing with them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, NamedTuple

import grpc

from bench import drivers, produce
from bench.controls import echo
from bench.figures import Figure
from penstock import AsyncClient, Client
from penstock.consuming.options import SubscribeOptions
from services import loops
from storage.format.receipt_handle import HANDLE_SIZE

BATCH: Final = 32
WANTED: Final = 100_000.0
_PREFETCH: Final = SubscribeOptions(topic="", group="").prefetch
_RECORD_BYTES: Final = len(produce.encoded(0, bytes(200))) // produce.RECORDS


class Served(NamedTuple):
    """A reader with so many messages in the topic of the benches, and an empty transport."""

    reader: str
    transport: str
    messages: int


def _rate(batches: Iterable[Any], messages: int) -> float:
    began, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch)
        if count >= messages:
            break
    return count / (time.perf_counter() - began)


async def _async_rate(batches: AsyncIterator[Any], messages: int) -> float:
    began, count = time.perf_counter(), 0
    async for batch in batches:
        count += len(batch)
        if count >= messages:
            break
    return count / (time.perf_counter() - began)


def _batches(served: Served, group: str) -> float:
    with (
        Client(reader=served.reader) as client,
        client.subscribe(produce.TOPIC, group=group, idle_s=5) as subscription,
    ):
        return _rate(subscription.batches(BATCH), served.messages)


def _asyncio_batches(served: Served, group: str) -> float:
    async def consume() -> float:
        async with (
            AsyncClient(reader=served.reader) as client,
            client.subscribe(produce.TOPIC, group=group, idle_s=5) as subscription,
        ):
            return await _async_rate(subscription.batches(BATCH), served.messages)

    return loops.run(consume())


def _empty(served: Served) -> float:
    """Receive in one line, acknowledge in another, as a subscription does."""
    calls = served.messages // _PREFETCH

    async def consume() -> float:
        async with grpc.aio.insecure_channel(served.transport, drivers.CLIENT_OPTIONS) as channel:
            transport: Any = channel  # requests and answers are bytes
            receive = transport.unary_unary(echo.SIZED)
            acknowledge = transport.unary_unary(echo.UNARY)
            asked = b"%d" % (_PREFETCH * (_RECORD_BYTES + HANDLE_SIZE))

            async def receiving() -> None:
                for _ in range(calls):
                    await receive(asked)

            async def acknowledging() -> None:
                for _ in range(calls):
                    await acknowledge(bytes(_PREFETCH * HANDLE_SIZE))

            began = time.perf_counter()
            await asyncio.gather(receiving(), acknowledging())
            return calls * _PREFETCH / (time.perf_counter() - began)

    return loops.run(consume())


WAYS: Final[dict[str, Callable[[Served, str], float]]] = {
    f"subscription, batches of {BATCH}, one client": _batches,
    f"subscription of asyncio, batches of {BATCH}, one client": _asyncio_batches,
}


def measure(served: Served, *, rounds: int) -> list[Figure]:
    """Let a new group consume the topic in each round, in each way, beside the control."""
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        bound = _empty(served)
        for name, consume in WAYS.items():
            reached = consume(served, f"{consume.__name__[1:]}-{number}")
            if number:  # the first round does not count
                pairs[name].append((reached, bound))
    figures = []
    for name, each in pairs.items():
        value, bound = (statistics.median(side) for side in zip(*each, strict=True))
        figures.append(
            Figure(
                name=name, value=value, unit="messages/s", limit=bound,
                limit_name="empty transport", ratio=value / bound, wanted=f"{WANTED:.0f}/s",
                reached=value >= WANTED, rounds=each,
            )
        )  # fmt: skip
    return figures
