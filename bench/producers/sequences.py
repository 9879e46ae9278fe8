"""Producing with sequences beside the same without: ``python -m bench.producers.sequences``.

Both sides send to one writer whose files are warmed and for whom no device is waited for, so that
what is compared is what numbering a request costs. A rate tells little of that on a shared machine:
from one round to the next it changes by more than what is asked for. So rounds are short and many,
the side that goes first changes with each, and the processor time that client and writer use for a
request is compared beside the rate. The steps that a sequence adds are timed in one process
(``bench.producers.request_cost``), beside all that a request takes; this decides where a rate
cannot. Requests are numbered before their round is timed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from bench import drivers, produce
from bench.figures import Figure, beside, show
from bench.produce import (
    BODY_BYTES,
    BURSTS,
    IN_FLIGHT,
    LOG_FILE_BYTES,
    STREAM,
    UNARY,
    batches,
    message,
)
from bench.producers import request_cost
from bench.resident import cpu_ns, wait_until_warmed
from penstock.sequences import RequestToken
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services import loops

FRAMES: Final = 100  # of a round
CALLS: Final = 1_000
PARTS: Final = 3  # rounds of this bench for one of another: they are short
WANTED: Final = 0.97  # of the rate without sequences
CPU_WANTED: Final = 1.03  # of the processor time without sequences
ADDED_WANTED: Final = 0.03  # of the same


class Side(NamedTuple):
    """What one side did in a round: requests a second, and the processor time that one took."""

    rate: drivers.Rate
    cpu_us: float


def numbered(numbers: Iterator[int], producer_id: int) -> Iterator[bytes]:
    """Return the fields by which requests of a producer are numbered, without end."""
    return (RequestToken(producer_id, number, 0).field(0) for number in numbers)


async def timed(
    process_ids: tuple[int, ...], requests: int, work: Callable[[], Awaitable[drivers.Rate]]
) -> Side:
    """Return what ``work`` did, which sends so many requests."""
    before = sum(map(cpu_ns, process_ids))
    rate = await work()
    return Side(rate, (sum(map(cpu_ns, process_ids)) - before) / requests / 1_000)


async def alternate(send: Callable[..., Awaitable[Side]], rounds: int) -> list[tuple[Side, Side]]:
    """Return what the sides with and without numbers did in each round, after one that does not count."""
    pairs = []
    for number in range(rounds + 1):
        if number % 2:
            ours = await send(with_numbers=True)
            bare = await send(with_numbers=False)
        else:
            bare = await send(with_numbers=False)
            ours = await send(with_numbers=True)
        pairs.append((ours, bare))
    return pairs[1:]


def figures_of(name: str, pairs: list[tuple[Side, Side]]) -> list[Figure]:
    """Return what rounds say of rates, and of the processor time of a request."""
    return [
        beside(
            name,
            "msg/s",
            [(ours.rate.value, bare.rate.value) for ours, bare in pairs],
            limit_name="without sequences",
            refused=sum(ours.rate.refused for ours, _ in pairs),
            wanted=f"{WANTED} x",
            is_reached=lambda _, ratio: ratio >= WANTED,
        ),
        beside(
            f"{name}: CPU of a request, client and writer",
            "us",
            [(ours.cpu_us, bare.cpu_us) for ours, bare in pairs],
            limit_name="without sequences",
            wanted=f"at most {CPU_WANTED} x",
            is_reached=lambda _, ratio: ratio <= CPU_WANTED,
        ),
    ]


async def measure(
    writer: str, writer_id: int, log: Path, *, rounds: int
) -> tuple[float, list[Figure]]:
    """Time batches on a stream and messages one a call, each with sequences and without.

    Returns first the processor time of a batch without.
    """
    numbers = numbered(count(1), secrets.randbelow(1 << 62) + 1)
    both = os.getpid(), writer_id
    async with grpc.aio.insecure_channel(writer, drivers.CLIENT_OPTIONS) as channel:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=produce.TOPIC, queue_count=8))
        frames, calls = batches(BODY_BYTES), [message()]
        await drivers.time_sink(channel, STREAM, frames[:1], in_flight=1)
        await asyncio.to_thread(wait_until_warmed, log, LOG_FILE_BYTES)

        async def stream(*, with_numbers: bool) -> Side:
            fields = numbers if with_numbers else cycle([b""])
            sent = [
                request_cost.own_bytes(field, frame)
                for frame, field in zip(islice(cycle(frames), FRAMES), fields, strict=False)
            ]
            work = partial(drivers.time_sink, channel, STREAM, sent, in_flight=IN_FLIGHT)
            return await timed(both, len(sent), work)

        async def unary(*, with_numbers: bool) -> Side:
            fields = numbers if with_numbers else cycle([b""])
            sent = [
                request_cost.own_bytes(call, field)
                for call, field in zip(islice(cycle(calls), CALLS), fields, strict=False)
            ]
            work = partial(drivers.time_unary, channel, UNARY, sent, in_flight=IN_FLIGHT)
            return await timed(both, len(sent), work)

        stream_name = f"produce stream with sequences, bursts of {FRAMES} batches"
        calls_name = f"produce with sequences, one message a call, {CALLS} calls"
        streams = await alternate(stream, rounds * PARTS)
        whole_us = statistics.median(bare.cpu_us for _, bare in streams)
        return whole_us, [
            *figures_of(stream_name, streams),
            *figures_of(calls_name, await alternate(unary, rounds * PARTS)),
        ]


def run(*, rounds: int) -> list[Figure]:
    """Start a writer, and time it; then the steps in this process."""
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store, *BURSTS) as (writer, process_id),
    ):
        whole_us, figures = loops.run(
            measure(writer, process_id, store / "commitlog", rounds=rounds)
        )
    added = beside(
        "what a sequence adds to the steps of client and writer for a batch, in process",
        "us",
        [(added_us, whole_us) for added_us in request_cost.added_us(rounds=rounds)],
        limit_name="CPU of a batch",
        wanted=f"at most {ADDED_WANTED} x",
        is_reached=lambda _, ratio: ratio <= ADDED_WANTED,
    )
    return [*figures, added]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.producers.sequences")
    parser.add_argument("--rounds", type=int, default=drivers.ROUNDS)
    show(run(rounds=parser.parse_args().rounds))


if __name__ == "__main__":
    main()
