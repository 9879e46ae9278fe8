"""The job ``audit``: the checks of ``penstock doctor`` over partitions of stores.

Tasks walk pieces of the log and compare their records with the queues, and look at one index file each; the
driver adds up what they met and looks at what is left. ``storage.checks`` says what is wrong.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack

from pipeline.errors import InvalidOption
from pipeline.jobs.progress import job_progress
from pipeline.jobs.work import (
    PIECE_BYTES,
    Stores,
    in_tasks,
    lost_files,
    open_stores,
    pieces_of,
    run_tasks,
    walk_piece,
)
from storage.checks.checkpoint import checkpoint
from storage.checks.index import IndexFileCheck, index_file_checks, missing_index_files
from storage.checks.log import log_files, log_records, log_tail
from storage.checks.queues import queue_files, queue_findings
from storage.checks.store import CheckedStore, WalkedLog, live_topics
from storage.findings import Finding
from storage.view.incarnations import Incarnations
from storage.view.log.commit_log import EVERYTHING
from storage.view.pieces import LogPiece
from storage.view.queues.comparison import RangeCheck, check_range
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView
from storage.view.table_damage import damaged_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit of one store found; ``finding_count`` is 0 for a store in order.

    ``findings`` are the first of them, each as ``penstock doctor --json`` prints it. ``keys`` are the entries of
    the index files.
    """

    store: str
    log_bytes: int
    records: int
    units: int
    keys: int
    finding_count: int
    findings: tuple[dict[str, Any], ...]
    seconds: float


class _Store(NamedTuple):
    """One store in the driver, as it was when the audit began."""

    view: StoreView
    plan: StorePlan
    topics: Incarnations
    abort_found: bool
    settled_offset: int
    index_files: list[IndexFileCheck]

    def checked(self, check: RangeCheck | None = None) -> CheckedStore:
        """Return the store for its checks; ``check`` is what all tasks met in its log."""
        bounds, check = self.plan.bounds, check or RangeCheck()
        damage, end_offset = [*check.damage, *lost_files(self.view)], bounds.end_offset
        lost_end = self.view.lost_end() if self.settled_offset == EVERYTHING else None
        if lost_end is not None:
            damage, end_offset = [*damage, lost_end], lost_end.end_offset
        return CheckedStore(
            view=self.view,
            log=self.view.log,
            sizes=self.view.sizes,
            walked=WalkedLog(
                bounds.min_offset, end_offset, bounds.end_offset,
                tuple(sorted(damage, key=lambda each: each.begin_offset)),
            ),
            check=check,
            topics=self.topics,
            abort_found=self.abort_found,
            settled_offset=self.settled_offset,
        )  # fmt: skip


class _Audited(NamedTuple):
    """What tasks know of a store."""

    view: StoreView
    topics: Incarnations
    end_offset: int


class AuditOptions(TypedDict, total=False):
    """What both functions take."""

    index: bool
    findings_to: str | Path | None
    limit: int
    piece_bytes: int
    show_progress: bool


def audit(spark: SparkSession, store: str | Path, **options: Unpack[AuditOptions]) -> AuditReport:
    """Audit one store; see ``audit_stores``."""
    return audit_stores(spark, [store], **options)[0]


def audit_stores(
    spark: SparkSession,
    stores: Stores,
    *,
    index: bool = True,
    findings_to: str | Path | None = None,
    limit: int = NAMED_MAX,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> list[AuditReport]:
    """Compare log, queues and index of each store, and look at its other files; nothing in them is written.

    A store may be in use, or not stopped in order: what its queues did not cover when the audit began is left
    out. ``index=False`` leaves the index out. Each report has ``limit`` findings at most and counts all; with
    ``findings_to``, a new directory, all are rows there, one JSON object a line, for ``spark.read.json``.
    Raises NotAStore, and InvalidOption for ``findings_to``.
    """
    began = perf_counter()
    opened = {str(view): _open(view, index) for view in open_stores(stores)}
    out = None if findings_to is None else _new_directory(findings_to)
    pieces = {name: pieces_of(store.plan, piece_bytes) for name, store in opened.items()}
    work = in_tasks(spark, [each for some in pieces.values() for each in some])
    files = [(name, file) for name, store in opened.items() for file in store.index_files]
    compared = {
        name: _Audited(store.view, store.topics, store.checked().compared_end)
        for name, store in opened.items()
    }
    total = sum(piece.cost for some in pieces.values() for piece in some)
    with job_progress(spark, "audit", total_bytes=total, show=show_progress) as progress:
        walk = partial(_walk, stores=compared, count=progress.counter.add)
        walked = run_tasks(spark, work, walk)
        found_in = run_tasks(spark, files, partial(_look_at, stores=compared))
    checks: dict[str, RangeCheck] = defaultdict(RangeCheck)
    for each in walked:
        for name, check in each.items():
            checks[name].add(check)
    reports = []
    for name, store in opened.items():
        of_index = [
            finding
            for (owner, _), finding in zip(files, found_in, strict=True)
            if owner == name and finding is not None
        ]
        found = _findings(store, checks[name], of_index if index else None)
        lines = (each.as_line(name) for each in found if each.is_wrong)
        count, named = _keep(lines, limit, out, name)
        reports.append(
            AuditReport(
                store=name,
                log_bytes=sum(piece.cost for piece in pieces[name]),
                records=checks[name].record_count,
                units=sum(r.end - r.begin for runs in checks[name].runs.values() for r in runs),
                keys=sum(file.file.counted(file.file.header()) for file in store.index_files),
                finding_count=count,
                findings=tuple(named),
                seconds=perf_counter() - began,
            )
        )
    if out is not None:
        (out / "_SUCCESS").touch()
    return reports


def _open(view: StoreView, with_index: bool) -> _Store:
    plan = StorePlan(view)
    # Before anything is listed: what the checkpoint promises must be in the files by then.
    _ = view.checkpoint, plan.bounds
    abort_found = view.filesystem.exists(view.paths.abort)
    is_settled = not (view.is_in_use or abort_found or view.location.is_url)
    settled_offset = EVERYTHING if is_settled else plan.bounds.queued_offset
    store = _Store(view, plan, live_topics(view), abort_found, settled_offset, [])
    return store._replace(index_files=index_file_checks(store.checked())) if with_index else store


def _new_directory(target: str | Path) -> Path:
    path = Path(target).absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidOption("findings", f"{target} exists; name a directory that does not")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _walk(
    pieces: Sequence[LogPiece], *, stores: dict[str, _Audited], count: Callable[[int], None]
) -> dict[str, RangeCheck]:
    """Compare the records of pieces with the queues; return what was met, by store."""
    checks: dict[str, RangeCheck] = defaultdict(RangeCheck)
    for name in dict.fromkeys(str(piece.store) for piece in pieces):
        view, topics, end_offset = stores[name]
        held = cache(lambda key, view=view: view.queue(*key).units)
        for piece in pieces:
            if str(piece.store) == name:
                checks[name].add(check_range(walk_piece(piece), held, topics, end_offset))
                count(piece.cost)
    return dict(checks)


def _look_at(item: tuple[str, IndexFileCheck], *, stores: dict[str, _Audited]) -> Finding | None:
    name, file = item
    return file.finding(stores[name].view.log)


def _findings(
    store: _Store, check: RangeCheck, of_index: Sequence[Finding] | None
) -> Iterator[Finding]:
    checked = store.checked(check)
    yield from log_files(checked)
    yield from log_records(checked)
    yield from log_tail(checked)
    yield from checkpoint(checked)
    yield from damaged_tables(checked.filesystem, checked.paths)
    yield from queue_files(checked)
    yield from queue_findings(checked)
    if of_index is not None:
        yield from of_index
        yield from missing_index_files(checked, store.index_files)


def _keep(
    lines: Iterable[dict[str, Any]], limit: int, out: Path | None, store: str
) -> tuple[int, list[dict[str, Any]]]:
    """Write findings where all are to be written; return how many there are, and the first."""
    lines = iter(lines)
    if out is None:
        named = list(islice(lines, limit))
        return len(named) + sum(1 for _ in lines), named
    named, count = [], 0
    path = out / f"findings-{store.strip('/').replace('/', '-')[-100:]}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for count, line in enumerate(lines, 1):
            file.write(json.dumps({"store": store, **line}) + "\n")
            if count <= limit:
                named.append(line)
    return count, named
