"""How far a job is: a bar in a terminal, a line now and then in a log, nothing where nobody looks.

Tasks say what they have done through ``JobProgress.counter``, an accumulator of Spark's, whose sums
arrive as tasks end. What runs as a query instead has no such place, and is followed by its stages.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.25
LINE_INTERVAL_S: Final = 10.0  # between the lines that a log gets
UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class JobProgress:
    """Bytes of log that a job is done with. ``counter`` is what tasks add to; give it to them."""

    def __init__(self, spark: SparkSession, total_bytes: int) -> None:
        self.counter: Any = spark.sparkContext.accumulator(0)
        self.total_bytes = total_bytes
        self._tracker = spark.sparkContext.statusTracker()
        self._at_driver = 0
        self._followed: tuple[str, int, int] | None = None
        self.step = ""

    def advance(self, count: int) -> None:
        """Add bytes that the driver itself is done with."""
        self._at_driver += count

    def grow(self, total_bytes: int) -> None:
        """Add to the total: another pass, another store."""
        self.total_bytes += total_bytes

    @contextlib.contextmanager
    def query(self, spark: SparkSession, total_bytes: int) -> Iterator[None]:
        """Count ``total_bytes`` by the stages of the queries that run inside; they are done after."""
        group = f"penstock-{id(self)}-{perf_counter()}"
        spark.sparkContext.setJobGroup(group, self.step or "penstock")
        self._followed = group, self._at_driver, total_bytes
        try:
            yield
        finally:
            before, self._followed = self._followed[1], None
            self._at_driver = before + total_bytes
            for name in ("spark.jobGroup.id", "spark.job.description"):
                spark.sparkContext.setLocalProperty(name, None)

    @property
    def done_bytes(self) -> int:
        """What is done, never more than the total."""
        done = int(self.counter.value) + self._at_driver
        followed = self._followed
        if followed is not None:
            done += int(followed[2] * self._stage_share(followed[0]))
        return min(done, self.total_bytes)

    def _stage_share(self, group: str) -> float:
        wanted = finished = 0
        for job in self._tracker.getJobIdsForGroup(group):
            info = self._tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                tasks = self._tracker.getStageInfo(stage)
                if tasks and tasks.numTasks:
                    wanted += tasks.numTasks
                    finished += tasks.numCompletedTasks
        return finished / wanted if wanted else 0.0


@contextlib.contextmanager
def job_progress(
    spark: SparkSession,
    name: str,
    *,
    total_bytes: int,
    show: bool = False,
) -> Iterator[JobProgress]:
    """Yield a :class:`JobProgress`; with ``show`` it is shown on stderr until the block ends.

    In tasks: ``counter.add(piece.cost)``, with ``counter = progress.counter`` given to them. Around a
    DataFrame's action: ``with progress.query(spark, total_bytes): df.write...``.
    """
    progress = JobProgress(spark, total_bytes)
    if not show:
        yield progress
        return
    stopping = threading.Event()
    view = _bar if sys.stderr.isatty() else _lines
    thread = threading.Thread(target=view, args=(name, progress, sys.stderr, stopping), daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        stopping.set()
        thread.join()


def _bar(name: str, progress: JobProgress, stream: TextIO, stopping: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.progress import TransferSpeedColumn as Speed

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        Speed(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(file=stream), transient=True) as bars:
        task = bars.add_task(name, total=progress.total_bytes)
        ending = False
        while not ending:
            ending = stopping.wait(POLL_S)
            label = f"{name}: {progress.step}" if progress.step else name
            bars.update(
                task,
                completed=progress.done_bytes,
                total=progress.total_bytes,
                description=label,
            )


def _lines(name: str, progress: JobProgress, stream: TextIO, stopping: threading.Event) -> None:
    began = perf_counter()
    while not stopping.wait(LINE_INTERVAL_S):
        done, total = progress.done_bytes, progress.total_bytes
        share = f" ({100 * done // total} %)" if total else ""
        rate = size_text(int(done / (perf_counter() - began)))
        label = f"{name}: {progress.step}" if progress.step else name
        stream.write(f"{label}: {size_text(done)} of {size_text(total)}{share}, {rate}/s\n")
        stream.flush()


def size_text(count: int) -> str:
    """Return bytes as people write them: ``1.5 GiB``."""
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
