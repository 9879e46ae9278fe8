"""A store at rest: ten consumers wait for one queue, and nobody sends.

Counted are the wake-ups of writer, reader and indexer (voluntary context switches of all their threads), and
the share of a core that the kernel's scheduler gave them. Three bare servers with the same consumers are the
control: what gRPC's own threads do at rest. A wake-up costs what the machine makes of it: a kernel that takes
pages of idle processes away can multiply the share, and changes no count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench import drivers
from bench.figures import Figure, beside, command
from bench.trickle import TOPIC, follow_stream
from penstock import AsyncClient
from services import loops

CONSUMERS: Final = 10
SECONDS: Final = 10.0
ROUNDS: Final = 3
SETTLE_S: Final = 5.0  # for what a start and a new stream leave to do
WAKES_WANTED: Final = 60.0
SHARE_WANTED: Final = 0.5  # percent of a core


class Rest(NamedTuple):
    """What processes do in a second in which they have nothing to do."""

    wakes: float
    core_percent: float


def _done_by(process_ids: Collection[int]) -> tuple[int, int]:
    """Return the wake-ups of all threads so far, and the nanoseconds that they ran."""
    wakes = ran_ns = 0
    for process_id in process_ids:
        for thread in Path(f"/proc/{process_id}/task").iterdir():
            status = dict(
                line.split(":", 1) for line in (thread / "status").read_text().splitlines()
            )
            wakes += int(status["voluntary_ctxt_switches"])
            ran_ns += int((thread / "schedstat").read_text().split()[0])
    return wakes, ran_ns


async def _rest(client: AsyncClient, process_ids: Collection[int], seconds: float) -> Rest:
    """Have consumers wait, and count."""

    async def wait() -> None:
        async for _ in follow_stream(client):
            raise RuntimeError("a message came, and none was sent")

    async with asyncio.TaskGroup() as waiting:
        tasks = [waiting.create_task(wait()) for _ in range(CONSUMERS)]
        await asyncio.sleep(SETTLE_S)
        wakes, ran_ns = _done_by(process_ids)
        await asyncio.sleep(seconds)
        wakes_after, ran_ns_after = _done_by(process_ids)
        for task in tasks:
            task.cancel()
    return Rest((wakes_after - wakes) / seconds, (ran_ns_after - ran_ns) / seconds / 1e7)


async def _ours(seconds: float) -> Rest:
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store, "--warm-cache-bytes-max", "0") as (writer, writer_id),
        drivers.service("reader", store) as (reader, reader_id),
        drivers.service("indexer", store) as (_, indexer_id),
    ):
        async with AsyncClient(writer=writer, reader=reader) as client:
            await client.create_topic(TOPIC, queues=1)
            return await _rest(client, [writer_id, reader_id, indexer_id], seconds)


async def _control(seconds: float) -> Rest:
    with ExitStack() as running:
        started = [
            running.enter_context(drivers.process("bench.controls.bare_store")) for _ in range(3)
        ]
        async with AsyncClient(reader=started[0][0]) as client:
            return await _rest(client, [each for _, each in started], seconds)


def run(*, rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Figure]:
    """Count at rest, each round beside the control."""
    pairs = [(loops.run(_ours(seconds)), loops.run(_control(seconds))) for _ in range(rounds)]
    return [
        _figure("wake-ups a second", "/s", WAKES_WANTED, [(a.wakes, b.wakes) for a, b in pairs]),
        _figure(
            "processor", "%", SHARE_WANTED, [(a.core_percent, b.core_percent) for a, b in pairs]
        ),
    ]


def _figure(name: str, unit: str, wanted: float, pairs: list[tuple[float, float]]) -> Figure:
    return beside(
        f"at rest, {CONSUMERS} consumers wait: {name}", unit, pairs, limit_name="three bare servers",
        wanted=f"{wanted:g} {unit}", is_reached=lambda value, _: value <= wanted,
    )  # fmt: skip


if __name__ == "__main__":
    command(run)
