"""Receiving and acknowledging by one client process, beside the same calls that do nothing."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from bench import drivers, produce
from bench.controls import echo
from bench.figures import Figure, command
from bench.leases import redelivery, subscribe
from penstock.v1 import leases_pb2
from services import loops

BATCH: Final = 32
IN_FLIGHT: Final = 8
BODY_BYTES: Final = 200
MESSAGES: Final = 200_000  # of a round
FRAMES: Final = MESSAGES // produce.RECORDS
AWAITED: Final = FRAMES * produce.RECORDS - 4 * IN_FLIGHT * BATCH  # those in flight go beyond
RATIO: Final = 0.4  # of calls that do nothing
CALL_ROUNDS: Final = 5
RECEIVE: Final = "/penstock.v1.Leases/Receive"
ACKNOWLEDGE: Final = "/penstock.v1.Leases/Acknowledge"


async def _per_second(turn: Callable[[], Awaitable[int]], messages: int) -> float:
    """Return messages a second of turns, `IN_FLIGHT` of them at once, until there were so many."""
    left = messages

    async def member() -> None:
        nonlocal left
        while left > 0:
            count = await turn()
            left -= count

    began = time.perf_counter()
    await asyncio.gather(*(member() for _ in range(IN_FLIGHT)))
    return (messages - left) / (time.perf_counter() - began)


def _consumer(channel: Any, group: str) -> Callable[[], Awaitable[int]]:
    """Return a turn of a group's member: receive a batch, and acknowledge it."""
    receive, acknowledge = channel.unary_unary(RECEIVE), channel.unary_unary(ACKNOWLEDGE)
    asked = leases_pb2.ReceiveRequest(
        group=group, topic=produce.TOPIC, max_messages=BATCH, wait_ms=1_000
    ).SerializeToString()

    async def turn() -> int:
        batch = leases_pb2.ReceiveResponse.FromString(await receive(asked))
        if not batch.record_count:
            raise RuntimeError("there was nothing to receive")
        done = leases_pb2.AcknowledgeRequest(
            group=group, topic=produce.TOPIC, receipt_handles=batch.receipt_handles
        )
        if await acknowledge(done.SerializeToString()):
            raise RuntimeError("an acknowledgement was refused")
        return batch.record_count

    return turn


def _empty(channel: Any) -> Callable[[], Awaitable[int]]:
    call = channel.unary_unary(echo.UNARY)

    async def turn() -> int:
        await call(b"")
        await call(b"")
        return BATCH

    return turn


async def measure(reader: str, transport: str, messages: int, *, rounds: int) -> list[Figure]:
    """Let a new group consume the topic in each round, call by call."""
    async with (
        grpc.aio.insecure_channel(reader, drivers.CLIENT_OPTIONS) as ours,
        grpc.aio.insecure_channel(transport, drivers.CLIENT_OPTIONS) as limit,
    ):
        pairs = []
        for number in range(rounds + 1):
            bound = await _per_second(_empty(limit), messages)
            reached = await _per_second(_consumer(ours, f"group-{number}"), messages)
            if number:  # the first round does not count
                pairs.append((reached, bound))
        value, bound = (statistics.median(each) for each in zip(*pairs, strict=True))
        return [
            Figure(
                name=f"receive + acknowledge, a call each for {BATCH}, one client",
                value=value, unit="messages/s", limit=bound, limit_name="empty transport",
                ratio=value / bound, wanted=f"{RATIO:.1f} x", reached=value / bound >= RATIO,
                rounds=pairs,
            )
        ]  # fmt: skip


def run(*, rounds: int = drivers.ROUNDS) -> list[Figure]:
    """Start a writer, a reader and an echo server, and time them."""
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store, *produce.BURSTS, *produce.COLD) as (writer, _),
        drivers.service("reader", store) as (reader, _),
        drivers.process("bench.controls.echo") as (transport, _),
    ):
        loops.run(produce.fill(writer, reader, FRAMES, BODY_BYTES))
        served = subscribe.Served(reader, transport, AWAITED)
        return [
            *subscribe.measure(served, rounds=rounds),
            *loops.run(measure(reader, transport, AWAITED, rounds=min(rounds, CALL_ROUNDS))),
            *redelivery.measure(writer, reader),
        ]


if __name__ == "__main__":
    command(run)
