"""What producers notice of the scrub: ``python -m bench.upkeep.scrub_beside_load [--rounds N]``.

Two writers, each with a store of its own: one reads its log all the time at the default rate, one never.
Streams of batches to them alternate in rounds of a second, and the writer whose turn it is not is stopped
meanwhile. Figures are the median of the rounds' ratios: messages a second, and processor time for a message.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

import grpc

from bench import drivers, produce
from bench.figures import Figure, beside, command
from bench.resident import cpu_seconds
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services import loops

ROUNDS: Final = 15
SECONDS: Final = 1.0
FILL_FRAMES: Final = 8_000  # half a GiB: a pass takes half a minute
SLOWER_WANTED: Final = 0.98
DEARER_WANTED: Final = 1.02
ALWAYS: Final = ("--scrub-interval-ms", "1")
NEVER: Final = ("--scrub-interval-ms", "0")


@dataclass(slots=True)
class LoadedWriter:
    """One of the two writers."""

    to: produce.Channels
    process_id: int

    def stop(self) -> None:
        """Let it do nothing."""
        os.kill(self.process_id, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it work again."""
        os.kill(self.process_id, signal.SIGCONT)

    async def round(self, frames: Sequence[bytes], seconds: float) -> tuple[float, float]:
        """Return messages a second, and microseconds of the writer's processor time for each."""
        self.go_on()
        before = cpu_seconds([self.process_id])
        sent = drivers.for_seconds(frames, seconds)
        rate = await drivers.time_sink(
            self.to.ours, produce.STREAM, sent, in_flight=produce.IN_FLIGHT
        )
        used_s = cpu_seconds([self.process_id]) - before
        await produce.settle(self.to)
        self.stop()
        return rate.value, used_s / (rate.value * seconds) * 1e6


async def loaded_writer(stack: AsyncExitStack, address: str, process_id: int) -> LoadedWriter:
    """Connect to a writer, fill its store and stop it."""
    channel = await stack.enter_async_context(
        grpc.aio.insecure_channel(address, drivers.CLIENT_OPTIONS)
    )
    stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
    await stub.CreateTopic(
        writer_pb2.CreateTopicRequest(name=produce.TOPIC, queue_count=produce.QUEUES)
    )
    side = LoadedWriter(produce.Channels(stub, channel, channel), process_id)
    await drivers.time_sink(
        channel, produce.STREAM, islice(cycle(produce.batches(produce.BODY_BYTES)), FILL_FRAMES),
        in_flight=32,
    )  # fmt: skip
    await produce.settle(side.to)
    side.stop()
    return side


async def _scrubbed(side: LoadedWriter) -> tuple[int, int]:
    """Return when the last reading of the log ended, and how far the next one is."""
    status = await side.to.stub.GetWriterStatus(writer_pb2.GetWriterStatusRequest())
    return status.scrub_completed_ms, status.scrub_position


async def alternate(
    services: Sequence[tuple[str, int]], rounds: int, seconds: float, *, scrubs: bool = False
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return what each round of both sides gave; RuntimeError if the first side ``scrubs`` and has read nothing."""
    frames = produce.batches(produce.BODY_BYTES)
    found = []
    async with AsyncExitStack() as stack:
        ours, other = [await loaded_writer(stack, *each) for each in services]
        ours.go_on()
        before = await _scrubbed(ours)
        for number in range(rounds + 1):
            order = (ours, other) if number % 2 else (other, ours)
            first, second = [await side.round(frames, seconds) for side in order]
            if number:  # the first round warms up
                found.append((first, second) if number % 2 else (second, first))
        ours.go_on()
        if scrubs and await _scrubbed(ours) <= before:
            raise RuntimeError("the scrub has read nothing")
    return found


@contextmanager
def two_writers(*flags: Sequence[str]) -> Iterator[list[tuple[str, int]]]:
    """Run a writer with each flags; give address and process id of each."""
    with ExitStack() as running:
        services = []
        for each in flags:
            store = running.enter_context(drivers.scratch_store())
            address, process_id = running.enter_context(drivers.service("writer", store, *each))
            running.callback(os.kill, process_id, signal.SIGCONT)
            services.append((address, process_id))
        yield services


def run(*, rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Figure]:
    """Measure both sides in turn."""
    with two_writers(ALWAYS, NEVER) as services:
        found = loops.run(alternate(services, rounds, seconds, scrubs=True))
    rates = [(with_[0], without[0]) for with_, without in found]
    costs = [(with_[1], without[1]) for with_, without in found]
    return [
        beside(
            "produce stream beside the scrub", "msg/s", rates, limit_name="without",
            wanted=f"{SLOWER_WANTED} x", is_reached=lambda _, ratio: ratio >= SLOWER_WANTED,
        ),
        beside(
            "the same: the writer's processor time for a message", "us", costs,
            limit_name="without", wanted=f"{DEARER_WANTED} x at most",
            is_reached=lambda _, ratio: ratio <= DEARER_WANTED,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    command(run)
