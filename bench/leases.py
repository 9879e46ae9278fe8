"""Leases: messages received and acknowledged by one client process, and how late others come again.

The control of a subscription makes the same calls with answers and requests of the same sizes, and does
nothing with them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, NamedTuple

import grpc

from bench import drivers, produce
from bench.controls import echo
from bench.figures import Figure, beside, command
from penstock import AsyncClient, Client
from penstock.consuming.options import SubscribeOptions
from services import loops
from storage.format.receipt_handle import HANDLE_SIZE

BODY_BYTES: Final = 200
MESSAGES: Final = 200_000  # of a round
FRAMES: Final = MESSAGES // produce.RECORDS
AWAITED: Final = FRAMES * produce.RECORDS - 1_024  # those in flight go beyond
BATCH: Final = 32
WANTED: Final = 100_000.0
TIMES: Final = 100  # that a message comes again
LEASE_MS: Final = 200
LATE_MS: Final = 50.0
GROUP: Final = "late"
TOPIC: Final = "again"
_PREFETCH: Final = SubscribeOptions(topic="", group="").prefetch
_RECORD_BYTES: Final = len(produce.encoded(0, bytes(BODY_BYTES))) // produce.RECORDS


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


def subscriptions(served: Served, *, rounds: int) -> list[Figure]:
    """Let a new group consume the topic in each round, in each way, beside the control."""
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        bound = _empty(served)
        for name, consume in WAYS.items():
            reached = consume(served, f"{consume.__name__[1:]}-{number}")
            if number:  # the first round does not count
                pairs[name].append((reached, bound))
    return [
        beside(
            name, "messages/s", each, limit_name="empty transport", wanted=f"{WANTED:.0f}/s",
            is_reached=lambda value, _: value >= WANTED,
        )
        for name, each in pairs.items()
    ]  # fmt: skip


def _lateness_ms(client: Client, *, gives_back: bool) -> float:
    received = client.receive(TOPIC, group=GROUP, lease_ms=LEASE_MS, wait_ms=5_000)
    if gives_back:
        due = client.clock.now_ms() + LEASE_MS
        client.change_leases(received, LEASE_MS)
    else:
        due = received.lease_end_ms
    again = client.receive(TOPIC, group=GROUP, wait_ms=5_000)
    late = client.clock.now_ms() - due
    if len(again.records) != 1:
        raise RuntimeError("the message did not come again")
    client.change_leases(again, 0)
    return float(late)


def redelivered(writer: str, reader: str) -> list[Figure]:
    """Lease one message again and again, and wait for it."""
    figures = []
    with Client(writer=writer, reader=reader) as client:
        client.create_topic(TOPIC, queues=1)
        client.create_group(GROUP, retry_max_times=16 * TIMES)
        client.produce(TOPIC, b"again")
        for name, gives_back in (("the end of a lease", False), ("a nack's delay", True)):
            late = sorted(_lateness_ms(client, gives_back=gives_back) for _ in range(TIMES))
            figures.append(
                Figure(
                    name=f"handed out again after {name}: latest of {TIMES}", value=late[-1],
                    unit="ms late", wanted=f"{LATE_MS:.0f} ms", reached=late[-1] <= LATE_MS,
                    rounds=[(each, None) for each in late],
                )
            )  # fmt: skip
    return figures


def run(*, rounds: int = drivers.ROUNDS) -> list[Figure]:
    """Start a writer, a reader and an echo server, and time them."""
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store, *produce.BURSTS, *produce.COLD) as (writer, _),
        drivers.service("reader", store) as (reader, _),
        drivers.process("bench.controls.echo") as (transport, _),
    ):
        loops.run(produce.fill(writer, reader, FRAMES, BODY_BYTES))
        served = Served(reader, transport, AWAITED)
        return [
            *subscriptions(served, rounds=rounds),
            *redelivered(writer, reader),
        ]


if __name__ == "__main__":
    command(run)
