"""The job ``rebuild``: consume queues and index files of stores rebuilt from their logs alone.

No shuffle: where a unit stands follows from its record's queue offset, so each task writes the units
of its pieces of the log straight to their places (see ``rebuild_queues``); where a key's entry stands
follows from the number of keys before it (see ``rebuild_index``). What is new has its name only when
all of it is durable: in a new directory, or in the place of the old files of a stopped store.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from pipeline.errors import InvalidOption, PipelineError
from pipeline.jobs.new_directory import new_directory
from pipeline.jobs.progress import job_progress
from pipeline.jobs.rebuild.in_place import beside, put_in_place
from pipeline.jobs.rebuild.index import index_shape
from pipeline.jobs.rebuild.passes import StoreWork, finish_queues, first_pass, make_index_files
from pipeline.jobs.work import (
    PIECE_BYTES,
    Stores,
    names_of,
    open_stores,
    pieces_of,
)
from storage.checks.store import live_topics
from storage.format.consume_entry import UNIT_SIZE
from storage.stopped.checkpoint import checkpoint_index
from storage.stopped.files import make_work_directory
from storage.stopped.locks import stopped_store
from storage.view.layout import INDEX_CHECKSUMS_DIRECTORY, INDEX_DIRECTORY, QUEUE_DIRECTORY
from storage.view.log.walk import DamagedRange
from storage.view.queues.record_queues import QueueKey
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHAT: Final = ("all", "queues", "index")


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild of one store did.

    ``target`` holds ``consumequeue`` and ``index``. ``gaps`` are queue offsets without a record, by
    queue; ``moved`` counts records whose queue offset is wrong.
    """

    store: str
    target: str
    log_bytes: int
    records: int
    units: int
    queues: int
    keys: int
    index_files: int
    damage: tuple[DamagedRange, ...]
    gaps: tuple[tuple[QueueKey, int, int], ...]
    moved: int
    seconds: float


class RebuildOptions(TypedDict, total=False):
    """What both functions take; sizes are the store's own unless given."""

    what: str
    in_place: bool
    consume_queue_file_size: int | None
    index_slot_count: int | None
    index_entry_count: int | None
    piece_bytes: int
    show_progress: bool


def rebuild(
    spark: SparkSession,
    store: str | Path,
    target: str | Path | None = None,
    **options: Unpack[RebuildOptions],
) -> RebuildReport:
    """Rebuild one store, to the new directory ``target`` or in place; see ``rebuild_stores``."""
    return _rebuild(spark, open_stores([store]), [Path(target)] if target else [], **options)[0]


def rebuild_stores(
    spark: SparkSession,
    stores: Stores,
    target: str | Path | None = None,
    **options: Unpack[RebuildOptions],
) -> list[RebuildReport]:
    """Rebuild the consume queues, index files or both (``what``) of each store; durable on return.

    Written to ``target/NAME``, NAME being that of the store's directory; or ``in_place``, where a store
    that is in use is refused. A job that is killed leaves the old files or the new ones; between the two
    there are none for a moment, and the next start rebuilds them. The files are a broker's, byte for byte, from the first record on that the log still has. Raises
    StoreLocked, NotAStore, and PipelineError: InvalidOption, or where ``target`` exists.
    """
    opened = open_stores(stores)
    named = [Path(target) / name for name in names_of(opened)] if target else []
    return _rebuild(spark, opened, named, **options)


def _rebuild(
    spark: SparkSession,
    opened: Sequence[StoreView],
    targets: Sequence[Path],
    *,
    what: str = "all",
    in_place: bool = False,
    consume_queue_file_size: int | None = None,
    index_slot_count: int | None = None,
    index_entry_count: int | None = None,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> list[RebuildReport]:
    began = perf_counter()
    if what not in WHAT:
        raise InvalidOption("what", f"{what!r} is not one of {', '.join(WHAT)}")
    if in_place == bool(targets):
        raise InvalidOption(
            "in_place" if in_place else "target",
            "a new directory is given, too; choose one"
            if in_place
            else "missing; give a new directory, or rebuild in place",
        )
    with ExitStack() as stack:
        if in_place:
            for files in opened:
                stack.enter_context(_held(files))
            opened = [StoreView.open(files.location) for files in opened]
            targets = [files.paths.root for files in opened]
        sizes = consume_queue_file_size, index_slot_count, index_entry_count
        stores = [
            _open(stack, files, target, what, in_place, sizes, piece_bytes)
            for files, target in zip(opened, targets, strict=True)
        ]
        total = sum(piece.cost for store in stores for piece in store.pieces)
        with job_progress(spark, "rebuild", total_bytes=total, show=show_progress) as progress:
            first_pass(spark, stores, progress)
            for store in stores:
                finish_queues(spark, store)
            make_index_files(spark, stores, progress)
        if in_place:
            for store in stores:
                if store.index is not None:  # first: they are of the files that go
                    shutil.rmtree(store.target / INDEX_CHECKSUMS_DIRECTORY, ignore_errors=True)
                for work, name in ((store.queues, QUEUE_DIRECTORY), (store.index, INDEX_DIRECTORY)):
                    if work is not None:
                        put_in_place(work, store.target / name)
                if store.index is not None:
                    checkpoint_index(store.files, store.plan.bounds.end_offset)
    return [_report(store, perf_counter() - began) for store in stores]


@contextmanager
def _held(files: StoreView) -> Iterator[None]:
    if files.location.is_url:
        raise InvalidOption("in_place", f"{files} is not on this machine; give a new directory")
    with stopped_store(files.paths.root):
        yield


def _open(
    stack: ExitStack,
    files: StoreView,
    target: Path,
    what: str,
    in_place: bool,
    sizes: tuple[int | None, int | None, int | None],
    piece_bytes: int,
) -> StoreWork:
    size = sizes[0] or files.sizes.consume_queue_file_size
    if size <= 0 or size % UNIT_SIZE:
        raise PipelineError(
            f"a consume queue file of {size} bytes does not hold whole units; give"
            f" consume_queue_file_size, a multiple of {UNIT_SIZE}"
        )
    shape = index_shape(files, sizes[1], sizes[2])
    plan = StorePlan(files)
    pieces = pieces_of(plan, piece_bytes)
    if in_place:
        root, make = target, beside
    else:
        root, make = stack.enter_context(new_directory(target)), _made
    queues = make(root / QUEUE_DIRECTORY) if what != "index" else None
    index = make(root / INDEX_DIRECTORY) if what != "queues" else None
    for work in (queues, index):
        if in_place and work is not None:
            stack.callback(shutil.rmtree, work, ignore_errors=True)
    return StoreWork(
        files,
        plan,
        target,
        queues,
        index,
        size,
        shape,
        live_topics(files),
        pieces,
    )


def _made(directory: Path) -> Path:
    make_work_directory(directory)
    return directory


def _report(store: StoreWork, seconds: float) -> RebuildReport:
    return RebuildReport(
        store=str(store.files),
        target=str(store.target),
        log_bytes=sum(piece.cost for piece in store.pieces),
        records=store.check.record_count,
        units=sum(plan.unit_count for plan in store.plans),
        queues=len(store.plans),
        keys=sum(keys.count for keys in store.keys),
        index_files=store.index_files,
        damage=tuple(store.damage),
        gaps=tuple((plan.key, *gap) for plan in store.plans for gap in plan.gaps),
        moved=sum(plan.moved_count for plan in store.plans),
        seconds=seconds,
    )
