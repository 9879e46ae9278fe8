"""Many pending timers: ``python -m bench.timers``.

Timers are appended with times over 40 days, and another process opens the store: until it knows all of
them, with how much memory. Then its clock goes on to where many are due together. The control appends as
many records of that size that are not delayed. Last, beside all that are still pending, messages come due
at a steady rate: how long after its time each was stored.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.figures import Figure, command
from storage.clock import SystemClock
from storage.errors import StoreBusy
from storage.files.filesystem import OsFileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.properties import encode_properties
from storage.format.record import decode_record, encode_for_batch
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


class Measured(NamedTuple):
    """What a process found that opened a store of many pending timers."""

    start_s: float
    memory_mb: float
    rate: float
    late_p99_ms: float


def batches(count: int, base_ms: int, *, delayed: bool) -> Iterator[bytes]:
    """Yield batches of records, with times of delivery over 40 days or with none."""
    dice = np.random.default_rng(5)
    key, name = "0" * 32, "TIMER_DELIVER_MS" if delayed else "DELIVER_MS_OF_NO_ONE"
    block = encode_properties({"UNIQ_KEY": key, name: str(base_ms)})
    records = [
        encode_for_batch("later", number & 3, BODY, block, 0, 0, base_ms, "10.0.0.1:5")
        for number in range(BATCH)
    ]
    key_at, due_at = (records[0].index(each.encode()) for each in (key, str(base_ms)))
    rows = np.frombuffer(b"".join(records), np.uint8).reshape(BATCH, -1).copy()
    for begin in range(0, count, BATCH):
        dues_ms = base_ms + 3_600_000 + dice.integers(39 * DAY_MS, size=BATCH)
        write_digits(rows[:, key_at : key_at + len(key)], np.arange(begin, begin + BATCH))
        write_digits(rows[:, due_at : due_at + len(str(base_ms))], dues_ms)
        yield rows[: count - begin].tobytes()


def write_digits(columns: npt.NDArray[np.uint8], values: npt.NDArray[np.int64]) -> None:
    """Write a number into each row, with zeros before it."""
    for column in columns.T[::-1]:
        column[:] = ord("0") + values % 10
        values = values // 10


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


def pending(root: Path, count: int, deliver: int, seconds: float) -> list[Figure]:
    """Measure a start with so many pending, so many of them due together, and others that come due steadily."""
    base_ms = SystemClock().now_ms()
    with StoreWriter.open(root / "timers") as writer:
        writer.create_topic("later", 4)
        append_all(writer, count, base_ms, delayed=True)
        wait_pending(writer, count)
    with ProcessPoolExecutor(1, get_context("spawn")) as another:
        found = another.submit(measure, root / "timers", count, deliver, seconds).result()
    with StoreWriter.open(root / "control") as writer:
        writer.create_topic("later", 4)
        control = deliver / append_all(writer, deliver, base_ms, delayed=False)
    return [
        _figure(f"{count:,} pending: start", found.start_s, "s", most=START_S_MAX),
        _figure("memory of them", found.memory_mb, "MB", most=MEMORY_MB_MAX),
        Figure(
            name=f"{deliver:,} of them due together", value=found.rate, unit="/s",
            reached=found.rate >= DELIVERIES_MIN, wanted=f"{DELIVERIES_MIN:,} at least",
            limit=control, limit_name="bare appends", ratio=found.rate / control,
        ),
        _figure(f"late at {PACE:,}/s, p99", found.late_p99_ms, "ms", most=LATE_MS_MAX),
    ]  # fmt: skip


def measure(store: Path, count: int, deliver: int, seconds: float) -> Measured:
    """Open a store of so many pending timers, deliver the first of them, and others at a steady rate."""
    clock = AheadClock()
    before_mb = resident_mb()
    began = time.perf_counter()
    with StoreWriter.open(store, clock=clock) as writer:
        wait_pending(writer, count)
        start_s = time.perf_counter() - began
        memory_mb = resident_mb() - before_mb
        clock.ahead_ms = 3_600_000 + round(39 * DAY_MS * deliver / count)
        began = time.perf_counter()
        while writer.timers.status().counts.delivered < deliver * 0.99:
            time.sleep(0.002)
        rate = writer.timers.status().counts.delivered / (time.perf_counter() - began)
        wait_delivered(writer)
        begin_offset = writer.appended_offset
        number = deliver_steadily(writer, clock, seconds)
    late_ms = late_from(store, begin_offset)
    assert len(late_ms) >= number, "lost"
    assert min(late_ms) >= 0, "early"
    return Measured(start_s, memory_mb, rate, float(np.percentile(late_ms, 99)))


def deliver_steadily(writer: StoreWriter, clock: AheadClock, seconds: float) -> int:
    """Store messages that come due a second later at a steady rate; return how many, when all have come."""
    number = 0
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds:
        wanted = int(passed_s * PACE)
        now_ms = clock.now_ms()
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
    time.sleep(2)
    wait_delivered(writer)
    return number


def wait_delivered(writer: StoreWriter) -> None:
    """Wait until everything is delivered that is due."""
    while not writer.timers.is_done():
        time.sleep(0.01)


def late_from(store: Path, begin_offset: int) -> list[int]:
    """Return how many milliseconds after its time each message was stored that the log has from there on."""
    late_ms = []
    files = ReadOnlyMappedFileQueue(OsFileSystem(), store / "commitlog", file_size=0)
    for step in walk_log(files, begin_offset, files.end_offset):
        if isinstance(step, RecordRun):
            for position in step.rows[:, 0].tolist():
                record = decode_record(step.data.data, position)
                if record.topic == "later":
                    due_ms = int(record.properties["TIMER_DELIVER_MS"])
                    late_ms.append(record.store_timestamp_ms - due_ms)
    return late_ms


def run(
    *,
    count: int = 10_000_000,
    deliver: int = 1_000_000,
    seconds: float = 5.0,
    directory: Path = Path(),
) -> list[Figure]:
    """Start with so many pending timers, deliver some of them together, then others at a steady rate."""
    with tempfile.TemporaryDirectory(dir=directory) as root:
        return pending(Path(root), count, deliver, seconds)


def _figure(name: str, value: float, unit: str, *, most: float) -> Figure:
    return Figure(
        name=name, value=value, unit=unit, reached=value <= most, wanted=f"{most:g} at most"
    )


if __name__ == "__main__":
    command(run)
