"""What an export's task does: read the pieces of a file and write them as Parquet, Arrow all the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.jobs.export.plan import FilePlan, day_of
from pipeline.source.columns import Columns
from pipeline.source.options import ReadOptions
from pipeline.source.read import Reader
from pipeline.source.schemas import CORRUPT

DAY_US: Final = 86_400_000_000
DAY: Final = "dt"
ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
ROW_GROUP_BYTES: Final = 64 << 20
ROW_GROUP_ROWS: Final = 1 << 17
DAMAGED_MAX: Final = 1000
HIVE_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}


@dataclass(frozen=True, slots=True)
class Layout:
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
    layout: Layout,
    count: Callable[[int], None],
) -> TaskDone:
    """Write the files of one task; each is durable on return."""
    done = TaskDone()
    reader = Reader(options, layout.columns)
    for plan in plans:
        days: dict[date, _DayFile] = {}
        for batch in reader.read(plan.pieces):
            good = _without_damage(batch, done)
            for day, part in _by_day(good):
                if day not in days:
                    days[day] = _DayFile(layout, plan, day)
                days[day].add(part)
        for file in days.values():
            done.files += file.close()
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


class _DayFile:
    """Files of one topic and day that one plan makes: one, or more if there are too many rows."""

    def __init__(self, layout: Layout, plan: FilePlan, day: date) -> None:
        self._layout = layout
        self._topic = plan.topic
        self._day = day
        self._number = plan.number
        self._made: list[FileDone] = []
        self._writer: Any = None
        self._path = Path()
        self._rows = 0
        self._waiting: list[Any] = []
        self._waiting_bytes = 0

    def add(self, batch: Any) -> None:
        """Add records, in order."""
        while len(batch):
            room = self._layout.rows_max - self._rows
            if room <= 0:
                self._finish()
                continue
            part, batch = batch.slice(0, room), batch.slice(room)
            self._rows += len(part)
            self._waiting.append(part)
            self._waiting_bytes += part.get_total_buffer_size()
            waiting_rows = sum(len(each) for each in self._waiting)
            if self._waiting_bytes >= ROW_GROUP_BYTES or waiting_rows >= ROW_GROUP_ROWS:
                self._write()

    def close(self) -> list[FileDone]:
        """Return the files."""
        if self._rows:
            self._finish()
        return self._made

    def _write(self) -> None:
        if self._writer is None:
            directory = Path(self._layout.directory)
            for name, value in (("topic", self._topic), (DAY, self._day.isoformat())):
                directory /= f"{name}={escaped(value)}"
            directory.mkdir(parents=True, exist_ok=True)
            suffix = f"-{len(self._made)}" if self._made else ""
            # One name for each day: where a clock went back a file may have two.
            name = f"part-{self._layout.run}-{self._number:05d}{suffix}.zstd.parquet"
            self._path = directory / name
            self._writer = pq.ParquetWriter(
                self._path, self._layout.schema, compression="zstd", write_page_index=True
            )
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._writer.write_table(_shaped(table, self._layout.schema, self._day))

    def _finish(self) -> None:
        if self._waiting:
            self._write()
        self._writer.close()
        self._writer = None
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path = str(self._path.relative_to(self._layout.directory))
        size = self._path.stat().st_size
        self._made.append(FileDone(path, self._topic, self._day.isoformat(), self._rows, size))
        self._rows = 0


def _shaped(table: Any, schema: Any, day: date) -> Any:
    """Return the columns that a file has, the day among them if it is not in the path."""
    if DAY in schema.names:
        days = pa.repeat(pa.scalar(day, pa.date32()), table.num_rows)
        table = table.append_column(pa.field(DAY, pa.date32()), days)
    return table.select(schema.names)
