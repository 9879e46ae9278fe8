"""What an export's task does: read the pieces of a file and write them as Parquet, Arrow all the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.jobs.export.plan import FilePlan, day_of
from pipeline.jobs.parquet_files import ParquetFile
from pipeline.source.options import ReadOptions
from pipeline.source.read import Reader
from pipeline.source.schemas import CORRUPT, Columns

DAY_US: Final = 86_400_000_000
DAY: Final = "dt"
DAMAGED_MAX: Final = 1000
HIVE_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How files look: where they go, and which columns stand in the path and not in the file."""

    directory: str
    run: str
    columns: Columns  # with the reason of damage last
    schema: Any  # of the files
    rows_max: int
    in_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileDone:
    """One file that was written; ``path`` is relative to the layout's directory."""

    path: str
    topic: str
    day: str
    rows: int
    size: int


@dataclass
class TaskDone:
    """What a task wrote, and the damaged records that it left out, by queue."""

    files: list[FileDone] = field(default_factory=list)
    damaged: list[dict[str, Any]] = field(default_factory=list)
    damaged_count: int = 0


def escaped(text: str) -> str:
    """Return a value as Hive and Spark write it into a path."""
    return "".join(f"%{ord(sign):02X}" if sign in HIVE_ESCAPED else sign for sign in text)


def write_files(
    plans: Sequence[FilePlan],
    *,
    options: ReadOptions,
    layout: FileLayout,
    count: Callable[[int], None],
) -> TaskDone:
    """Write the files of one task; each is durable on return."""
    done = TaskDone()
    reader = Reader(options, layout.columns)
    for plan in plans:
        days: dict[date, _DayFiles] = {}
        for batch in reader.read(plan.pieces):
            good = _without_damage(batch, done)
            for day, part in _by_day(good):
                if day not in days:
                    days[day] = _DayFiles(layout, plan, day)
                days[day].add(part)
        for files in days.values():
            done.files += files.close()
        count(plan.cost)
    return done


def _without_damage(batch: Any, done: TaskDone) -> Any:
    reasons = batch.column(batch.schema.get_field_index(CORRUPT))
    if reasons.null_count == len(reasons):
        return batch
    bad = pc.is_valid(reasons)
    names = ["store", "topic", "queueId", "queueOffset", "physicalOffset", CORRUPT]
    rows = batch.filter(bad).select(names).to_pylist()
    done.damaged_count += len(rows)
    done.damaged += rows[: max(0, DAMAGED_MAX - len(done.damaged))]
    return batch.filter(pc.invert(bad))


def _by_day(batch: Any) -> Iterator[tuple[date, Any]]:
    """Part a batch by the day of its records' store time; nearly always there is one."""
    if not len(batch):
        return
    times = batch.column(batch.schema.get_field_index("storeTimestamp"))
    numbers = times.cast(pa.int64()).to_numpy(zero_copy_only=False) // DAY_US
    if numbers[0] == numbers[-1] and not (numbers != numbers[0]).any():
        yield day_of(int(numbers[0])), batch
        return
    for number in np.unique(numbers).tolist():
        yield day_of(number), batch.filter(pa.array(numbers == number))


class _DayFiles:
    """The files of one topic and day that one plan makes: one, or more if there are too many rows."""

    def __init__(self, layout: FileLayout, plan: FilePlan, day: date) -> None:
        self._layout = layout
        self._topic = plan.topic
        self._day = day
        self._number = plan.number
        self._done: list[FileDone] = []
        self._file = self._next()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records, in order."""
        batch = self._shaped(batch)
        while len(batch):
            room = self._layout.rows_max - self._file.rows
            if room <= 0:
                self._finish()
                self._file = self._next()
                continue
            self._file.add(batch.slice(0, room))
            batch = batch.slice(room)

    def close(self) -> list[FileDone]:
        """Return the files, which are durable."""
        self._finish()
        return self._done

    def _next(self) -> ParquetFile:
        directory = Path(self._layout.directory)
        for name, value in (("topic", self._topic), (DAY, self._day.isoformat())):
            directory /= f"{name}={escaped(value)}"
        directory.mkdir(parents=True, exist_ok=True)
        suffix = f"-{len(self._done)}" if self._done else ""
        # One name for each day: where a clock went back a plan may have two.
        name = f"part-{self._layout.run}-{self._number:05d}{suffix}.zstd.parquet"
        return ParquetFile(directory / name, self._layout.schema)

    def _finish(self) -> None:
        size = self._file.close()
        path = str(self._file.path.relative_to(self._layout.directory))
        self._done.append(FileDone(path, self._topic, self._day.isoformat(), self._file.rows, size))

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that a file has, the day among them if it is not in the path."""
        if DAY in self._layout.schema.names:
            days = pa.repeat(pa.scalar(self._day, pa.date32()), len(batch))
            batch = batch.append_column(DAY, days)
        return batch.select(self._layout.schema.names)
