"""A quiet system: 1,000 single messages a second, one a call, and a consumer that follows.

The producer is a process of its own (``bench.paced_producer``), the consumer is this one; each
message carries when it was sent. Counted are the processor seconds of writer, reader and indexer, once
the writer has warmed its files, and the time from the call to the record in the consumer's hands. The
control is one bare server for the same calls, which hands each record on to the stream: what gRPC costs
where nothing is stored, indexed or shared.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import drivers
from bench.figures import Figure, beside, command
from bench.paced_producer import BODY_BYTES, sent_at_s
from bench.resident import cpu_seconds, wait_until_warmed
from penstock import AsyncClient
from services import loops
from services.config.settings import WriterSettings
from storage.files.allocator import WARM_FILES

TOPIC: Final = "bench"
QUEUES: Final = 4
PER_SECOND: Final = 1_000
SECONDS: Final = 5.0
ROUNDS: Final = 3
FEW: Final = 200  # messages that are not counted: the first of each process
CPU_WANTED_S: Final = 2.0  # for 5,000 messages
P99_WANTED_MS: Final = 5.0
_SERVICES: Final = ("writer", "reader", "indexer")


class Round(NamedTuple):
    """What one side did with a round's messages."""

    cpu_s: Mapping[str, float]
    p50_ms: float
    p99_ms: float

    @property
    def all_cpu_s(self) -> float:
        """Processor seconds of all processes."""
        return sum(self.cpu_s.values())


async def follow_stream(client: AsyncClient) -> AsyncIterator[bytes]:
    """Give the bodies of one queue as a following stream of pulls brings them."""
    async for pulled in client.pull_stream(TOPIC, 0, 0, follow=True):
        for record in pulled.records:
            yield record.body


async def follow_queues(client: AsyncClient) -> AsyncIterator[bytes]:
    """Give the bodies of all queues as a consumer brings them."""
    async with client.consume(TOPIC) as consumer:
        async for record in consumer:
            yield record.body


async def time_round(
    bodies: AsyncIterator[bytes],
    address: str,
    processes: Mapping[str, int],
    *,
    queues: int,
    count: int,
) -> Round:
    """Have ``count`` messages sent after a few that do not count, and follow them.

    Raises RuntimeError if the producer fails, or a message does not come within 10 s.
    """
    producer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.paced_producer", address, TOPIC,
        str(queues), str(PER_SECOND), str(FEW + count),
    )  # fmt: skip
    taken_ms: list[float] = []
    before: dict[str, float] = {}
    async with asyncio.timeout(10 + (FEW + count) / PER_SECOND * 3):
        for number in range(FEW + count):
            body = await anext(bodies)
            if number < FEW:
                continue
            if not before:
                before = {name: cpu_seconds([process_id]) for name, process_id in processes.items()}
            taken_ms.append((time.monotonic() - sent_at_s(body)) * 1e3)
        used = {name: cpu_seconds([each]) - before[name] for name, each in processes.items()}
        if await producer.wait():
            raise RuntimeError("the producer failed")
    parts = statistics.quantiles(taken_ms, n=100)
    return Round(used, parts[49], parts[98])


@contextmanager
def services(store: Path) -> Any:
    """Run the three services; give address and process id of each."""
    with ExitStack() as running:
        yield {
            name: running.enter_context(
                drivers.process(
                    f"services.{name}", "--store", str(store), "--listen", "127.0.0.1:0"
                )
            )
            for name in _SERVICES
        }


async def _ours(count: int, *, streams: bool) -> Round:
    with drivers.scratch_store() as store, services(store) as running:
        (writer, _), (reader, _), _ = running.values()
        async with AsyncClient(writer=writer, reader=reader) as client:
            queues = 1 if streams else QUEUES
            await client.create_topic(TOPIC, queues=queues)
            await client.produce(TOPIC, bytes(BODY_BYTES), queue_id=0)  # has the second file made
            config = WriterSettings(store=store).store_config()
            if config.warm_cache_bytes_max >= WARM_FILES * config.commit_log_file_size:
                log = store / "commitlog"
                await asyncio.to_thread(wait_until_warmed, log, config.commit_log_file_size)
            bodies = follow_stream(client) if streams else follow_queues(client)
            processes = {name: process_id for name, (_, process_id) in running.items()}
            return await time_round(bodies, writer, processes, queues=queues, count=count)


async def _control(count: int) -> Round:
    with drivers.process("bench.controls.bare_store") as (address, process_id):
        async with AsyncClient(reader=address) as client:
            return await time_round(
                follow_stream(client), address, {"control": process_id},
                queues=1, count=count,
            )  # fmt: skip


def run(*, rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Figure]:
    """Time a following stream and a consumer of four queues, each beside the control."""
    count = int(PER_SECOND * seconds)
    figures = []
    for streams, how in ((True, "a following stream"), (False, f"consume, {QUEUES} queues")):
        pairs = [
            (loops.run(_ours(count, streams=streams)), loops.run(_control(count)))
            for _ in range(rounds)
        ]
        figures += _figures(f"{PER_SECOND:,} single messages a second, {how}", pairs, count)
    return figures


def _figures(name: str, pairs: list[tuple[Round, Round]], count: int) -> list[Figure]:
    per_5000 = 5_000 / count
    cpu = [(ours.all_cpu_s * per_5000, limit.all_cpu_s * per_5000) for ours, limit in pairs]
    parts = ", ".join(
        f"{each} {statistics.median(ours.cpu_s[each] for ours, _ in pairs) * per_5000:.2f}"
        for each in _SERVICES
    )
    figures = [_figure(f"{name}: CPU of 5,000 ({parts})", "s", CPU_WANTED_S, cpu)]
    figures.append(
        _figure(
            f"{name}: p99 from the call to the record",
            "ms",
            P99_WANTED_MS,
            [(ours.p99_ms, limit.p99_ms) for ours, limit in pairs],
        )
    )
    figures.append(
        _figure(
            f"{name}: p50",
            "ms",
            P99_WANTED_MS,
            [(ours.p50_ms, limit.p50_ms) for ours, limit in pairs],
        )
    )
    return figures


def _figure(name: str, unit: str, wanted: float, pairs: list[tuple[float, float]]) -> Figure:
    return beside(
        name,
        unit,
        pairs,
        limit_name="bare server",
        wanted=f"{wanted:g} {unit}",
        is_reached=lambda value, _: value <= wanted,
    )


if __name__ == "__main__":
    command(run)
