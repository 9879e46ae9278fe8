"""Messages received and acknowledged by groups of one client process, beside the same calls that do nothing."""

from __future__ import annotations

from typing import Final

from bench import drivers, produce
from bench.figures import Figure, command
from bench.leases import redelivery, subscribe
from services import loops

BODY_BYTES: Final = 200
MESSAGES: Final = 200_000  # of a round
FRAMES: Final = MESSAGES // produce.RECORDS
AWAITED: Final = FRAMES * produce.RECORDS - 1_024  # those in flight go beyond


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
            *redelivery.measure(writer, reader),
        ]


if __name__ == "__main__":
    command(run)
