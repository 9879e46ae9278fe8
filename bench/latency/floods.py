"""What an honest producer and consumer notice of a hostile caller: ``python -m bench.latency.floods``.

An honest producer sends 100 single messages a second and a consumer follows; both are timed alone and
beside each kind of flood (``bench.latency.flooder``), which is a process of its own on the same machine.
Then eight honest clients of a store with accounts send as much together, alone and beside a flood by a user
who has limits, from the flood's third second on.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import drivers
from bench.figures import Figure, show
from bench.latency import flooder
from bench.latency.trickle import PRODUCE, follow_stream, services, time_round
from penstock import AsyncClient
from services import loops
from storage.accounts.account_table import AccountTable
from storage.accounts.limits import Limits
from storage.accounts.rules import UserKind
from storage.files.filesystem import OsFileSystem

TOPIC: Final = "bench"
FLOODED: Final = "flooded"  # a topic of its own
PER_SECOND: Final = 100
SECONDS: Final = 10.0
ALONE: Final = "nobody else"
HONEST: Final = 8
ROUNDS: Final = 3
LIMITED: Final = "a user with limits"
FLOOD: Final = "1,024 calls on one connection"
LIMITS: Final = Limits(requests_per_second=200, calls_max=32)
WANTED_RATIO: Final = 2.0
SETTLED_S: Final = 2.0  # the flood's first calls, all at once, cost the service one long moment


class Honest(NamedTuple):
    """The 99th percentiles of an honest caller, and resident memory of writer and reader after it."""

    produce_ms: float
    received_ms: float
    memory_mib: tuple[float, float]


async def measure(kind: str, seconds: float) -> Honest:
    """Time an honest producer and consumer beside a flood."""
    with drivers.scratch_store() as store, services(store) as running, ExitStack() as flood:
        (writer, writer_id), (reader, reader_id), _ = running.values()
        async with AsyncClient(writer=writer, reader=reader) as client:
            for topic in (TOPIC, FLOODED):
                await client.create_topic(topic, queues=1)
            for _ in range(64):  # for who reads nothing to have something not to read
                await client.produce(FLOODED, bytes(64 << 10), queue_id=0)
            if kind != ALONE:
                flood.enter_context(
                    drivers.command(
                        [
                            sys.executable,
                            "-m",
                            "bench.latency.flooder",
                            kind,
                            writer,
                            reader,
                            FLOODED,
                        ],
                        says="flood is",
                    )
                )
            processes = {"writer": writer_id, "reader": reader_id}
            times: list[float] = []
            round_ = await time_round(
                follow_stream(client), writer, PRODUCE, processes,
                queues=1, count=int(PER_SECOND * seconds), per_second=PER_SECOND, calls_ms=times,
            )  # fmt: skip
            memory_mib = drivers.resident_mib(writer_id), drivers.resident_mib(reader_id)
            return Honest(statistics.quantiles(times, n=100)[98], round_.p99_ms, memory_mib)


async def measure_limited(seconds: float) -> Figure:
    """Time eight honest clients beside a flood by a user with limits, and alone, in turn."""
    with drivers.scratch_store() as store, ExitStack() as stack:
        table = AccountTable(OsFileSystem(), store / "config")
        honest = table.create_user("honest", UserKind.SUPER)
        table.create_user("hostile", UserKind.SUPER)
        hostile = table.update_user("hostile", limits=LIMITS)
        writer, reader = (
            stack.enter_context(drivers.service(name, store, "--accounts"))[0]
            for name in ("writer", "reader")
        )
        pairs = []
        async with AsyncExitStack() as open_clients:
            clients = [
                await open_clients.enter_async_context(
                    AsyncClient(
                        writer=writer,
                        reader=reader,
                        access_key=honest.name,
                        secret_key=honest.secrets[0],
                    )
                )
                for _ in range(HONEST)
            ]
            for topic in (TOPIC, FLOODED):
                await clients[0].create_topic(topic, queues=1)
            await _p99_ms(clients, 1.0)
            for _ in range(ROUNDS):
                alone_ms = await _p99_ms(clients, seconds)
                with drivers.command(
                    [
                        sys.executable, "-m", "bench.latency.flooder", FLOOD, writer, reader, FLOODED,
                        hostile.name, hostile.secrets[0],
                    ],
                    says="flood is",
                ):  # fmt: skip
                    await asyncio.sleep(SETTLED_S)
                    pairs.append((await _p99_ms(clients, seconds), alone_ms))
    ratio = statistics.median(beside_ms / alone_ms for beside_ms, alone_ms in pairs)
    beside_ms, alone_ms = (statistics.median(each) for each in zip(*pairs, strict=True))
    return Figure(
        name=f"p99 of {HONEST} honest clients beside a user with limits, settled: {FLOOD}",
        value=beside_ms,
        unit="ms",
        reached=ratio <= WANTED_RATIO,
        wanted=f"at most {WANTED_RATIO:g} x alone",
        limit=alone_ms,
        limit_name="alone",
        ratio=ratio,
        rounds=pairs,
    )


async def _p99_ms(clients: Sequence[AsyncClient], seconds: float) -> float:
    """Return the 99th percentile of single messages that all clients send, each at its own times."""
    taken_ms: list[float] = []
    every_s = len(clients) / PER_SECOND

    async def send(client: AsyncClient, first_s: float) -> None:
        began = time.monotonic()
        for number in range(int(seconds / every_s)):
            await asyncio.sleep(max(0.0, began + first_s + number * every_s - time.monotonic()))
            called = time.monotonic()
            await client.produce(TOPIC, bytes(100), queue_id=0)
            taken_ms.append((time.monotonic() - called) * 1e3)

    await asyncio.gather(
        *(send(client, place / PER_SECOND) for place, client in enumerate(clients))
    )
    return statistics.quantiles(taken_ms, n=100)[98]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency.floods")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", choices=(*flooder.KINDS, LIMITED), action="append")
    arguments = parser.parse_args()
    table = Table(title=f"An honest caller of {PER_SECOND} messages a second, p99")
    for heading in ("beside", "produce", "call to record", "writer, reader"):
        table.add_column(heading)
    kinds = arguments.only or [*flooder.KINDS, LIMITED]
    for kind in (ALONE, *kinds) if kinds != [LIMITED] else ():
        if kind == LIMITED:
            continue
        found = loops.run(measure(kind, arguments.seconds))
        memory = ", ".join(f"{mib:.0f} MiB" for mib in found.memory_mib)
        table.add_row(kind, f"{found.produce_ms:.1f} ms", f"{found.received_ms:.1f} ms", memory)
    if table.row_count:
        Console().print(table)
    if LIMITED in kinds:
        show([loops.run(measure_limited(arguments.seconds))])


if __name__ == "__main__":
    main()
