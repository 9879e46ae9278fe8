"""Pieces of logs dealt out to Spark's tasks, the logs of many stores in one job."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pipeline.errors import PipelineError, TaskFailed
from pipeline.source.pieces import cost_of, pack
from storage.kernels.columns import CHECK_ALL, ByteArray
from storage.view.log.walk import DamagedRange, RecordRun, walk_range
from storage.view.pieces import LogPiece
from storage.view.store_view import StoreLocation, StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from storage.view.store_plan import StorePlan

PIECE_BYTES: Final = 64 << 20
TASK_BYTES: Final = 512 << 20
Stores = str | Path | Sequence[str | Path]
Item = TypeVar("Item")
Result = TypeVar("Result")


def open_stores(stores: Stores) -> list[StoreView]:
    """Open one store or several; NotAStore for a path that is not one, PipelineError if one is named twice."""
    given = [stores] if isinstance(stores, str | Path) else list(stores)
    if not given:
        raise PipelineError("no store is named; give the directory of one at least")
    seen: dict[StoreLocation, str | Path] = {}
    for store in given:
        place = StoreLocation.of(store)
        if not place.is_url:
            place = StoreLocation.of(place.root.resolve())
        if place in seen:
            raise PipelineError(f"{store} and {seen[place]} are one store; name it once")
        seen[place] = store
    return [StoreView.open(store) for store in given]


def names_of(stores: Sequence[StoreView]) -> list[str]:
    """Return a name for each store, for what is written of it: that of its directory.

    Raises PipelineError where two are called the same.
    """
    names = [store.location.name for store in stores]
    for store, name in zip(stores, names, strict=True):
        if names.count(name) > 1:
            raise PipelineError(
                f"several stores are called {name!r}, {store} for one; what is written is"
                " named after them: run the job on each by itself"
            )
    return names


def pieces_of(plan: StorePlan, piece_bytes: int) -> list[LogPiece]:
    """Cut all of a store's log that may be read."""
    low, high, _ = plan.bounds
    return list(plan.log_pieces(low, high, piece_bytes, None))


def lost_files(store: StoreView) -> Iterator[DamagedRange]:
    """Yield the ranges of the log whose file is gone, though one before and one after it are there."""
    starts = [entry.start_offset for entry in store.log.entries]
    for begin, end in store.lost_log_ranges():
        before = starts[bisect_right(starts, begin) - 1]
        yield DamagedRange(begin, end, f"the file is missing, the first after {before:020d}")


def walk_piece(
    piece: LogPiece, data: ByteArray | None = None, *, checks: int = CHECK_ALL
) -> Iterator[RecordRun | DamagedRange]:
    """Yield what a piece holds, in order: runs of intact records, and damage.

    ``data`` is ``piece.data()``, for callers that have it.
    """
    data = piece.data() if data is None else data
    return walk_range(data, piece.file_start, piece.begin, piece.end, checks=checks)


def in_tasks(
    spark: SparkSession, items: Sequence[Item], *, cost: Callable[[Item], int] = cost_of
) -> list[tuple[Item, ...]]:
    """Deal items out, neighbours together, to tasks of ``TASK_BYTES``, of less where slots would be idle."""
    share = sum(map(cost, items)) // max(1, spark.sparkContext.defaultParallelism)
    return pack(items, max(1, min(TASK_BYTES, share)), cost=cost)


def run_tasks(
    spark: SparkSession, items: Iterable[Item], function: Callable[[Item], Result]
) -> list[Result]:
    """Run one task an item and return the results in order; ``function`` and items are pickled.

    Raises TaskFailed with what a task raised.
    """
    given = list(items)
    if not given:
        return []
    tasks = spark.sparkContext.parallelize(given, len(given)).map(function)
    with task_failures_raised():
        found: list[Any] = tasks.collect()
    return found


def run_each(
    spark: SparkSession,
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    cost: Callable[[Item], int] = cost_of,
) -> list[Result]:
    """Run ``work`` on each item, several in a task, and return the results in order."""
    found = run_tasks(spark, in_tasks(spark, items, cost=cost), partial(_each, work=work))
    return [result for results in found for result in results]


def _each(items: Sequence[Item], *, work: Callable[[Item], Result]) -> list[Result]:
    return [work(item) for item in items]


@contextmanager
def task_failures_raised() -> Iterator[None]:
    """Turn an error of Spark's into TaskFailed with what a task raised."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise
        raise TaskFailed(f"a task failed: {cause_of(str(error))}") from error


def cause_of(text: str) -> str:
    """Return what a task raised, out of what Spark says of it: the last line of its traceback."""
    begin = text.find("Traceback (most recent call last)")
    traceback = text[max(begin, 0) :].partition("\n\tat ")[0]
    lines = [line for line in traceback.splitlines() if line and not line.startswith((" ", "\t"))]
    return (lines or [text])[-1].strip()
