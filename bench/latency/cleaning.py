"""What producers notice of retention: calls a second beside the deletion of 100 GiB of the log.

A store of many sparse files, of one record and a blank one each, is opened by a writer. A producer of its
own process (``bench.latency.paced_producer``) makes 1,000 calls a second, first alone, then while the files
are deleted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from pathlib import Path
from typing import Final, NamedTuple

from bench import drivers
from bench.figures import Figure, beside, show
from bench.latency.trickle import FEW, PER_SECOND, PRODUCE, QUEUES, ROUNDS, TOPIC
from penstock import AsyncClient
from services import loops
from storage.files.mapped_file_queue import file_path
from storage.format.record import encode_blank, encode_record

FILES: Final = 100
FILE_BYTES: Final = 1 << 30
SECONDS: Final = 8.0
RATIO_WANTED: Final = 1.5


class Calls(NamedTuple):
    """The 99th percentile of the calls of one round, in milliseconds."""

    quiet_p99_ms: float
    cleaning_p99_ms: float


def make_old_files(store: Path, count: int, *, file_bytes: int = FILE_BYTES) -> None:
    """Write a log of ``count`` sparse files with a record and a blank one each, and one more that is open."""
    log = store / "commitlog"
    log.mkdir(parents=True)
    for number in range(count + 1):
        record = encode_record(
            topic="old", queue_id=0, body=b"", queue_offset=number,
            commit_offset=number * file_bytes, born_timestamp_ms=1_000, store_timestamp_ms=1_000,
        )  # fmt: skip
        with file_path(log, number * file_bytes).open("wb") as file:
            file.write(record)
            if number < count:
                file.write(encode_blank(file_bytes - len(record)))
            file.truncate(file_bytes)


async def p99_ms(address: str, count: int) -> float:
    """Return what 99 of 100 calls of a paced producer take at most."""
    producer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.latency.paced_producer", address, PRODUCE, TOPIC,
        str(QUEUES), str(PER_SECOND), str(FEW + count), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await producer.communicate()
    if producer.returncode:
        raise RuntimeError("the producer failed")
    taken_ms: list[float] = json.loads(printed)[FEW:]
    return statistics.quantiles(taken_ms, n=100)[98]


async def _round(files: int, count: int) -> Calls:
    with drivers.scratch_store() as store:
        make_old_files(store, files)
        with drivers.service("writer", store) as (address, _):
            async with AsyncClient(writer=address, timeout_s=120) as client:
                await client.create_topic(TOPIC, queues=QUEUES)
                quiet_p99_ms = await p99_ms(address, count)
                calls = asyncio.create_task(p99_ms(address, count))
                report = await client.delete_expired(0)
                cleaning_p99_ms = await calls
    if report.deleted_file_count < files:
        raise RuntimeError(f"{report.deleted_file_count} of {files} files were deleted")
    return Calls(quiet_p99_ms, cleaning_p99_ms)


def run(*, rounds: int = ROUNDS, files: int = FILES, seconds: float = SECONDS) -> list[Figure]:
    """Time calls alone and beside the deletion, in turn."""
    count = int(PER_SECOND * seconds)
    measured = [loops.run(_round(files, count)) for _ in range(rounds)]
    pairs = [(each.cleaning_p99_ms, each.quiet_p99_ms) for each in measured]
    return [
        beside(
            f"{PER_SECOND:,} single messages a second while {files} GiB of the log are deleted: p99",
            "ms",
            pairs,
            limit_name="quiet",
            wanted=f"{RATIO_WANTED} x at most",
            is_reached=lambda _, ratio: ratio <= RATIO_WANTED,
        )
    ]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency.cleaning")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    show(run(rounds=arguments.rounds, files=arguments.files, seconds=arguments.seconds))


if __name__ == "__main__":
    main()
