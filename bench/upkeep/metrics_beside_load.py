"""What metrics cost a stream of batches: ``python -m bench.upkeep.metrics_beside_load [--rounds N]``.

Two writers, each with a store of its own: one has metrics and is scraped once in each round, the other has
none. Streams of batches to them alternate in rounds of a second, and the writer whose turn it is not is
stopped meanwhile; so do pull streams of two readers. Figures are medians of the rounds' ratios of processor
time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Final

import grpc

from bench import drivers, produce, pull
from bench.controls import echo
from bench.figures import Figure, beside, command
from bench.resident import cpu_seconds
from bench.upkeep.scrub_beside_load import ROUNDS, SECONDS, LoadedWriter, loaded_writer
from penstock.v1 import reader_pb2
from services import loops
from services.rpc.ports import keep_port

DEARER_WANTED: Final = 1.03
Pairs = list[tuple[float, float]]


async def _scraped(page: str, cost: Awaitable[float]) -> float:
    """Return a cost, with a scrape in its midst where there is a page."""
    reading = asyncio.ensure_future(asyncio.to_thread(_read, page)) if page else None
    found = await cost
    if reading is not None:
        await reading
    return found


def _read(page: str) -> None:
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=30) as answer:
        assert b"penstock_rpc_seconds" in answer.read()


async def _alternate(
    sides: Sequence[Callable[[], Awaitable[float]]], page: str, rounds: int
) -> Pairs:
    """Return the costs of both sides, the one with metrics at the front, of each round but the first."""
    pairs = []
    with_metrics, without = sides
    for number in range(rounds + 1):
        if number % 2:
            ours = await _scraped(page, with_metrics())
            other = await without()
        else:
            other = await without()
            ours = await _scraped(page, with_metrics())
        pairs.append((ours, other))
    return pairs[1:]


async def _writers(services: Sequence[tuple[str, int]], page: str, rounds: int) -> Pairs:
    frames = produce.batches(produce.BODY_BYTES)
    async with AsyncExitStack() as stack:
        writers: list[LoadedWriter] = [await loaded_writer(stack, *each) for each in services]

        def cost(writer: LoadedWriter) -> Callable[[], Awaitable[float]]:
            async def measure() -> float:
                return (await writer.round(frames, SECONDS))[1]

            return measure

        return await _alternate([cost(each) for each in writers], page, rounds)


async def _readers(services: Sequence[tuple[str, int]], page: str, rounds: int) -> Pairs:
    request = reader_pb2.PullStreamRequest(
        topic=produce.TOPIC, max_bytes=echo.RESPONSE_BYTES
    ).SerializeToString()
    size = pull.QUEUE_MIB << 20
    async with AsyncExitStack() as stack:

        async def cost(address: str, process_id: int) -> Callable[[], Awaitable[float]]:
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(address, drivers.CLIENT_OPTIONS)
            )

            async def measure() -> float:
                before = cpu_seconds([process_id])
                for _ in range(8):
                    await drivers.time_source(
                        channel, "/penstock.v1.Reader/PullStream", request, at_least=size
                    )
                return (cpu_seconds([process_id]) - before) / (8 * pull.QUEUE_MIB) * 1e3

            return measure

        return await _alternate([await cost(*each) for each in services], page, rounds)


def _figure(name: str, unit: str, pairs: Pairs) -> Figure:
    return beside(
        name, unit, pairs, limit_name="without", wanted=f"{DEARER_WANTED} x at most",
        is_reached=lambda _, ratio: ratio <= DEARER_WANTED,
    )  # fmt: skip


def run(*, rounds: int = ROUNDS) -> list[Figure]:
    """Measure both sides in turn, writers and then readers."""
    page, kept = keep_port("127.0.0.1:0")
    with kept, ExitStack() as running:
        services = []
        for listen in (page, "none"):
            store = running.enter_context(drivers.scratch_store())
            address, process_id = running.enter_context(
                drivers.service("writer", store, "--metrics-listen", listen)
            )
            running.callback(os.kill, process_id, signal.SIGCONT)
            services.append((address, process_id))
        writing = loops.run(_writers(services, page, rounds))
    page, kept = keep_port("127.0.0.1:0")
    with kept, ExitStack() as running:
        store = running.enter_context(drivers.scratch_store())
        writer, _ = running.enter_context(
            drivers.service("writer", store, *produce.BURSTS, *produce.COLD)
        )
        services = [
            running.enter_context(drivers.service("reader", store, "--metrics-listen", listen))
            for listen in (page, "none")
        ]
        loops.run(produce.fill(writer, services[0][0], pull.FRAMES))
        reading = loops.run(_readers(services, page, rounds))
    return [
        _figure("produce stream with metrics: processor time of a message", "us", writing),
        _figure("pull stream with metrics: processor time of a MiB", "ms", reading),
    ]


if __name__ == "__main__":
    command(run)
