"""What a unary call costs on each server that the services have: ``python -m bench.calls``.

Both answer with the same bytes, and have the same options, event loop and client. Counted is the server's
processor time, since the client, in Python, is the slower side.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import grpc

from bench import drivers
from bench.controls import echo
from bench.figures import Figure, alternate, beside, command
from bench.resident import cpu_seconds
from services import loops

ROUNDS: Final = 7
CALLS: Final = 10_000
BODY_BYTES: Final = 1_024
IN_FLIGHT: Final = (1, 64)
RATIO_WANTED: Final = 0.5


async def _calls(address: str, count: int, in_flight: int) -> None:
    left = iter(range(count))
    request = bytes(BODY_BYTES)
    async with grpc.aio.insecure_channel(address, drivers.CLIENT_OPTIONS) as channel:
        method: Any = channel.unary_unary(echo.UNARY, None, None)

        async def call_on() -> None:
            for _ in left:
                await method(request)

        await asyncio.gather(*(call_on() for _ in range(in_flight)))


def _cpu_us(server: tuple[str, int], count: int, in_flight: int) -> float:
    """Return the server's processor time of a call."""
    address, process_id = server
    before = cpu_seconds([process_id])
    loops.run(_calls(address, count, in_flight))
    time.sleep(0.05)  # the last answers are written
    return (cpu_seconds([process_id]) - before) / count * 1e6


def run(*, rounds: int = ROUNDS, calls: int = CALLS) -> list[Figure]:
    """Measure both servers in turn."""
    with (
        drivers.process("bench.controls.echo") as ours,
        drivers.process("bench.controls.echo", "aio") as theirs,
    ):
        return [
            _figure(
                in_flight,
                alternate(
                    lambda: _cpu_us(ours, calls, in_flight),  # noqa: B023  called before the next
                    lambda: _cpu_us(theirs, calls, in_flight),  # noqa: B023
                    rounds=rounds,
                ),
            )
            for in_flight in IN_FLIGHT
        ]


def _figure(in_flight: int, pairs: list[tuple[float, float]]) -> Figure:
    return beside(
        f"processor time of the server for a unary call of 1 KiB, {in_flight} in flight",
        "us",
        pairs,
        limit_name="the server on grpc.aio",
        wanted=f"{RATIO_WANTED} x",
        is_reached=lambda _, ratio: ratio <= RATIO_WANTED,
    )


if __name__ == "__main__":
    command(run)
