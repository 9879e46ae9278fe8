"""Many pending timers: ``python -m bench.timers.pending [--count 10000000] [--deliver 1000000] [--seconds 10]``.

Timers are appended with times over 40 days, and the store is closed and opened again: until it knows all of
them, with how much memory. Then its clock goes on to where many are due together. The control appends as many
records of that size that are not delayed. Last, in a store of its own, messages come due at a steady rate by
the real clock: how long after its time each was stored.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from bench.figures import Figure, show
from storage.clock import SystemClock
from storage.errors import StoreBusy
from storage.files.filesystem import OsFileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.properties import encode_properties
from storage.format.record import decode_record, encode_for_batch
from storage.kernels import warm
from storage.view.log.walk import RecordRun, walk_log
from storage.writer import StoreWriter

DAY_MS: Final = 86_400_000
BATCH: Final = 2_000
BODY: Final = b"x" * 100
START_S_MAX: Final = 2.0
MEMORY_MB_MAX: Final = 200
DELIVERIES_MIN: Final = 100_000
LATE_MS_MAX: Final = 100
PACE: Final = 5_000


class AheadClock(SystemClock):
    """The system's clock, so much ahead."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """Return the system's time and what it is ahead."""
        return super().now_ms() + self.ahead_ms


def batches(count: int, base_ms: int, *, delayed: bool) -> Iterator[bytes]:
    """Yield batches of records, with times of delivery over 40 days or with none."""
    dice = random.Random(5)
    for begin in range(0, count, BATCH):
        records = []
        for number in range(begin, min(begin + BATCH, count)):
            deliver_ms = base_ms + 3_600_000 + dice.randrange(39 * DAY_MS)
            name = "TIMER_DELIVER_MS" if delayed else "DELIVER_MS_OF_NO_ONE"
            block = encode_properties({"UNIQ_KEY": f"{number:032X}", name: str(deliver_ms)})
            records.append(
                encode_for_batch("later", number & 3, BODY, block, 0, 0, base_ms, "10.0.0.1:5")
            )
        yield b"".join(records)


def append_all(writer: StoreWriter, count: int, base_ms: int, *, delayed: bool) -> float:
    """Append so many records; return the seconds that the appends took."""
    spent = 0.0
    for batch in batches(count, base_ms, delayed=delayed):
        began = time.perf_counter()
        while True:
            try:
                writer.append_batch(batch)
                break
            except StoreBusy as busy:
                time.sleep(busy.retry_delay_ms / 1000)
        spent += time.perf_counter() - began
    return spent


def resident_mb() -> float:
    """Return the private memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def wait_pending(writer: StoreWriter, count: int) -> None:
    """Wait until the store knows of so many timers."""
    while writer.timers.status().pending_count != count:
        time.sleep(0.01)


def pending(root: Path, count: int, deliver: int) -> list[Figure]:
    """Measure a start with so many pending, and so many of them due together."""
    clock = AheadClock()
    base_ms = clock.now_ms()
    with StoreWriter.open(root / "timers", clock=clock) as writer:
        writer.create_topic("later", 4)
        append_all(writer, count, base_ms, delayed=True)
        wait_pending(writer, count)
    before_mb = resident_mb()
    began = time.perf_counter()
    with StoreWriter.open(root / "timers", clock=clock) as writer:
        wait_pending(writer, count)
        start_s = time.perf_counter() - began
        memory_mb = resident_mb() - before_mb
        clock.ahead_ms = 3_600_000 + round(39 * DAY_MS * deliver / count)
        began = time.perf_counter()
        while writer.timers.status().counts.delivered < deliver * 0.99:
            time.sleep(0.002)
        delivered = writer.timers.status().counts.delivered
        rate = delivered / (time.perf_counter() - began)
    with StoreWriter.open(root / "control") as writer:
        writer.create_topic("later", 4)
        control = deliver / append_all(writer, deliver, base_ms, delayed=False)
    return [
        _figure(f"{count:,} pending: start", start_s, "s", most=START_S_MAX),
        _figure("memory of them", memory_mb, "MB", most=MEMORY_MB_MAX),
        Figure(
            name="due together", value=rate, unit="/s", reached=rate >= DELIVERIES_MIN,
            wanted=f"{DELIVERIES_MIN:,} at least",
            limit=control, limit_name="bare appends", ratio=rate / control,
        ),
    ]  # fmt: skip


def _figure(name: str, value: float, unit: str, *, most: float) -> Figure:
    return Figure(
        name=name, value=value, unit=unit, reached=value <= most, wanted=f"{most:g} at most"
    )


def lateness(root: Path, seconds: float) -> Figure:
    """Measure how late messages are that come due at a steady rate."""
    with StoreWriter.open(root / "paced") as writer:
        writer.create_topic("later", 4)
        end = time.monotonic() + seconds
        number = 0
        began = time.monotonic()
        while time.monotonic() < end:
            wanted = int((time.monotonic() - began) * PACE)
            now_ms = SystemClock().now_ms()
            records = [
                encode_for_batch(
                    "later", n & 3, BODY,
                    encode_properties({"TIMER_DELIVER_MS": str(now_ms + 1_000 + n % 500)}),
                    0, 0, now_ms, "10.0.0.1:5",
                )
                for n in range(number, wanted)
            ]  # fmt: skip
            number = wanted
            if records:
                writer.append_batch(b"".join(records))
            time.sleep(0.005)
        while writer.timers.status().pending_count:
            time.sleep(0.05)
    late = []
    files = ReadOnlyMappedFileQueue(OsFileSystem(), root / "paced" / "commitlog", file_size=0)
    for step in walk_log(files, files.first_offset, files.end_offset):
        if isinstance(step, RecordRun):
            for position in step.rows[:, 0].tolist():
                record = decode_record(step.data.data, position)
                if record.topic == "later":
                    late.append(
                        record.store_timestamp_ms - int(record.properties["TIMER_DELIVER_MS"])
                    )
    p99 = float(np.percentile(late, 99))
    assert min(late) >= 0, "early"
    return _figure(f"late at {PACE:,}/s, p99", p99, "ms", most=LATE_MS_MAX)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--deliver", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--directory", type=Path, default=None)
    wanted = parser.parse_args()
    warm()
    with tempfile.TemporaryDirectory(dir=wanted.directory) as root:
        figures = pending(Path(root), wanted.count, wanted.deliver)
        figures.append(lateness(Path(root), wanted.seconds))
    show(figures)


if __name__ == "__main__":
    main()
