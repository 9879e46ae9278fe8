"""What an honest producer and consumer notice of a hostile caller: ``python -m bench.latency.floods``.

An honest producer sends 100 single messages a second and a consumer follows; both are timed alone and
beside each kind of flood (``bench.latency.flooder``), which is a process of its own on the same machine.
Then eight honest clients of a store with accounts send as much together, alone and beside a flood by a user
who has limits, from the flood's third second on.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from typing import Final

from bench import drivers
from bench.figures import Figure, beside, command
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


async def measure(kind: str, seconds: float) -> tuple[float, float]:
    """Return the p99 in ms of an honest caller beside a flood: of its calls, and from a call to its record."""
    with drivers.scratch_store() as store, services(store) as running, ExitStack() as flood:
        (writer, writer_id), (reader, reader_id), _ = running.values()
        async with AsyncClient(writer=writer, reader=reader) as client:
            for topic in (TOPIC, FLOODED):
                await client.create_topic(topic, queues=1)
            for _ in range(64):  # for who reads nothing to have something not to read
                await client.produce(FLOODED, bytes(64 << 10), queue_id=0)
            if kind != ALONE:
                flood.enter_context(_flood(kind, writer, reader, FLOODED))
            processes = {"writer": writer_id, "reader": reader_id}
            times: list[float] = []
            round_ = await time_round(
                follow_stream(client), writer, PRODUCE, processes,
                queues=1, count=int(PER_SECOND * seconds), per_second=PER_SECOND, calls_ms=times,
            )  # fmt: skip
            return statistics.quantiles(times, n=100)[98], round_.p99_ms


def _flood(*arguments: str) -> AbstractContextManager[tuple[str, int]]:
    """Run a flooder until the end."""
    command_line = [sys.executable, "-m", "bench.latency.flooder", *arguments]
    return drivers.command(command_line, says="flood is")


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
                with _flood(FLOOD, writer, reader, FLOODED, hostile.name, hostile.secrets[0]):
                    await asyncio.sleep(SETTLED_S)
                    pairs.append((await _p99_ms(clients, seconds), alone_ms))
    return _figure(f"{HONEST} honest clients, settled, beside a user with limits: {FLOOD}", pairs)


def _figure(name: str, pairs: list[tuple[float, float]]) -> Figure:
    return beside(
        f"p99 of {name}", "ms", pairs, limit_name="alone", wanted=f"at most {WANTED_RATIO:g} x alone",
        is_reached=lambda _, ratio: ratio <= WANTED_RATIO,
    )  # fmt: skip


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


def run(*, seconds: float = SECONDS, only: str = "") -> list[Figure]:
    """Time honest callers beside each kind of flood, and beside a user with limits; ``only`` one of them."""
    figures = []
    kinds = [kind for kind in flooder.KINDS if only in ("", kind)]
    alone = loops.run(measure(ALONE, seconds)) if kinds else (0.0, 0.0)
    for kind in kinds:
        for what, value, limit in zip(
            ("its calls", "call to record"), loops.run(measure(kind, seconds)), alone, strict=True
        ):
            figures.append(_figure(f"an honest caller, {what}, beside {kind}", [(value, limit)]))
    if only in ("", LIMITED):
        figures.append(loops.run(measure_limited(seconds)))
    return figures


if __name__ == "__main__":
    command(run)
