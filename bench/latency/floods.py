"""What an honest producer and consumer notice of a hostile caller: ``python -m bench.latency.floods``.

An honest producer sends 100 single messages a second and a consumer follows; both are timed alone and
beside each kind of flood (``bench.latency.flooder``), which is a process of its own on the same machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import drivers
from bench.latency import flooder
from bench.latency.trickle import PRODUCE, follow_stream, services, time_round
from penstock import AsyncClient
from services import loops

TOPIC: Final = "bench"
FLOODED: Final = "flooded"  # a topic of its own
PER_SECOND: Final = 100
SECONDS: Final = 10.0
ALONE: Final = "nobody else"


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


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency.floods")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", choices=flooder.KINDS, action="append")
    arguments = parser.parse_args()
    table = Table(title=f"An honest caller of {PER_SECOND} messages a second, p99")
    for heading in ("beside", "produce", "call to record", "writer, reader"):
        table.add_column(heading)
    for kind in (ALONE, *(arguments.only or flooder.KINDS)):
        found = loops.run(measure(kind, arguments.seconds))
        memory = ", ".join(f"{mib:.0f} MiB" for mib in found.memory_mib)
        table.add_row(kind, f"{found.produce_ms:.1f} ms", f"{found.received_ms:.1f} ms", memory)
    Console().print(table)


if __name__ == "__main__":
    main()
