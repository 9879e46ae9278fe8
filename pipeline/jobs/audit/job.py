"""The job ``audit``: log, queues and index of stores compared with each other, every checksum.

One walk of the log does it: each record must be whole, the unit at its queue offset must be what
dispatch would write, and its keys must be the entries of the index in that range. Units and entries
that no record accounts for are named too, the chains of index files are followed, and lengths of
files, checkpoint and configuration are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pipeline.errors import InvalidOption
from pipeline.jobs.audit.files import (
    audit_checkpoint,
    audit_config,
    audit_end,
    audit_log_files,
    audit_queue_files,
)
from pipeline.jobs.audit.findings import NAMED_MAX, Finding, Findings
from pipeline.jobs.audit.index_entries import IndexToAudit
from pipeline.jobs.audit.index_files import (
    AuditedIndexFile,
    audit_entries_after_log,
    audit_index_file,
    look_at_index,
)
from pipeline.jobs.audit.pieces import PieceAudit, StoreToAudit, audit_piece
from pipeline.jobs.audit.units import unaccounted_units
from pipeline.jobs.progress import job_progress
from pipeline.jobs.runs import by_queue
from pipeline.jobs.work import (
    PIECE_BYTES,
    TASK_BYTES,
    Stores,
    in_tasks,
    lost_files,
    open_stores,
    pieces_of,
    run_tasks,
)
from storage.format.index import IndexHeader
from storage.view.in_use import is_in_use
from storage.view.pieces import LogPiece
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.record_queues import QueueKey
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INDEX_FILES_KEPT: Final = (
    2  # by a task, between its pieces: of a store behind a URL each is fetched whole
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit of one store found; ``finding_count`` is 0 for a store in order.

    ``findings`` names the first of them. ``keys`` are those compared with the index. ``doubled_keys``
    are entries which a key has too many: a broker that was killed indexes some records again, and
    finds them once as before, so they are no finding.
    """

    store: str
    log_bytes: int
    records: int
    units: int
    keys: int
    doubled_keys: int
    finding_count: int
    findings: tuple[Finding, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _AuditTask:
    """One task: pieces of logs, or an index file of a store."""

    number: int
    pieces: tuple[LogPiece, ...] = ()
    index: tuple[str, AuditedIndexFile] | None = None
    live: bool = False


@dataclass
class _Done:
    pieces: list[PieceAudit]
    findings: dict[str, Findings]


@dataclass
class _Store:
    """One store in the driver."""

    files: StoreView
    plan: StorePlan
    in_use: bool
    index: list[AuditedIndexFile]

    @property
    def name(self) -> str:
        return str(self.files)

    @property
    def with_entries(self) -> list[AuditedIndexFile]:
        """The index files that have entries."""
        return [file for file in self.index if file.entry_count]

    @property
    def indexed_offset(self) -> int | None:
        """Up to where every key must be in the index, None if nothing says so.

        Of a store in use nothing does: its indexer may just be making files again.
        """
        return None if self.in_use else self.files.stated_index_end()

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing may be written after the end: not in use, and not ours, which recovers it."""
        return not self.in_use and self.files.stated_bounds() is None

    @property
    def queued_offset(self) -> int:
        """Up to where every record must be in its queue: all of them after an orderly stop."""
        bounds = self.plan.bounds
        names = {entry.name for entry in self.files.entries(self.files.paths.root)}
        stopped = self.is_at_rest and "abort" not in names
        return bounds.end_offset if stopped else bounds.queued_offset


def audit(
    spark: SparkSession,
    store: str | Path,
    *,
    index: bool = True,
    findings_to: str | Path | None = None,
    limit: int = NAMED_MAX,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> AuditReport:
    """Audit one store; see ``audit_stores``."""
    return audit_stores(
        spark,
        [store],
        index=index,
        findings_to=findings_to,
        limit=limit,
        piece_bytes=piece_bytes,
        show_progress=show_progress,
    )[0]


def audit_stores(
    spark: SparkSession,
    stores: Stores,
    *,
    index: bool = True,
    findings_to: str | Path | None = None,
    limit: int = NAMED_MAX,
    piece_bytes: int = PIECE_BYTES,
    task_bytes: int = TASK_BYTES,
    show_progress: bool = False,
) -> list[AuditReport]:
    """Compare everything in each store with everything else; nothing in them is written.

    A store may be in use: what its writer had not confirmed, its queues did not cover or its index had
    not reached when the audit began does not count. ``index=False`` leaves the index out.
    Each report names ``limit`` findings at most and counts all; with ``findings_to``, a new directory
    that all tasks can write to, all are rows there, one JSON object a line, for
    ``spark.read.json``. Raises NotAStore, and InvalidOption for ``findings_to``.
    """
    began = perf_counter()
    opened = [_open(files, index) for files in open_stores(stores)]
    out = None if findings_to is None else _new_directory(findings_to)
    known = {
        store.name: StoreToAudit(
            store.files,
            store.queued_offset,
            store.files.settings.deleted_topics,
            IndexToAudit(store.with_entries, store.indexed_offset, store.in_use) if index else None,
        )
        for store in opened
    }
    pieces = [piece for store in opened for piece in pieces_of(store.plan, piece_bytes)]
    work: list[_AuditTask] = []
    for number, group in enumerate(in_tasks(spark, pieces, task_bytes)):
        work.append(_AuditTask(number, pieces=group))
    for store in opened:
        for file in store.index:
            if not file.file.slot_count:
                continue
            work.append(_AuditTask(len(work), index=(store.name, file), live=store.in_use))
    total = sum(piece.cost for piece in pieces)
    with job_progress(spark, "audit", total_bytes=total, show=show_progress) as progress:
        run = partial(_run, stores=known, limit=limit, out=out, count=progress.counter.add)
        done = run_tasks(spark, work, run)
    seconds = perf_counter() - began
    results = _by_store(done)
    reports = [_report(store, results[store.name], limit, out, index, seconds) for store in opened]
    if out is not None:
        (out / "_SUCCESS").touch()
    return reports


def _open(files: StoreView, with_index: bool) -> _Store:
    plan = StorePlan(files)
    # Before the index is listed: what the checkpoint promises must be in the files by then.
    _ = files.checkpoint
    in_use = not files.location.is_url and is_in_use(files.paths.root)
    index = look_at_index(files, live=in_use) if with_index else []
    # Before anything is read, so that what comes meanwhile is outside the bounds.
    _ = plan.bounds, plan.queues
    return _Store(files, plan, in_use, index)


def _new_directory(target: str | Path) -> Path:
    path = Path(target).absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidOption("findings", f"{target} exists; name a directory that does not")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _run(
    task: _AuditTask,
    *,
    stores: dict[str, StoreToAudit],
    limit: int,
    out: Path | None,
    count: Callable[[int], None],
) -> _Done:
    done = _Done([], {})
    queue_of = cache(_queue_of)
    entries_of = lru_cache(INDEX_FILES_KEPT)(AuditedIndexFile.entries)
    if task.index is not None:
        name, file = task.index
        findings = done.findings[name] = Findings(
            limit, _part(out, name, f"part-{task.number}"), name
        )
        audit_index_file(file, findings, live=task.live)
    for piece in task.pieces:
        name = str(piece.store)
        if name not in done.findings:
            path = _part(out, name, f"part-{task.number}")
            done.findings[name] = Findings(limit, path, name)
        findings = done.findings[name]
        done.pieces.append(audit_piece(piece, stores[name], queue_of, entries_of, findings))
        count(piece.cost)
    for findings in done.findings.values():
        findings.close()
    return done


def _queue_of(store: StoreView, key: QueueKey) -> QueueFiles:
    return store.queue(*key)


def _part(out: Path | None, store: str, name: str) -> Path | None:
    if out is None:
        return None
    return out / f"{name}-{store.strip('/').replace('/', '-')[-100:]}.jsonl"


@dataclass
class _Result:
    """What all tasks found in one store."""

    pieces: list[PieceAudit] = field(default_factory=list)
    findings: list[Findings] = field(default_factory=list)


def _by_store(done: Sequence[_Done]) -> dict[str, _Result]:
    results: dict[str, _Result] = defaultdict(_Result)
    for each in done:
        for piece in each.pieces:
            results[piece.store].pieces.append(piece)
        for name, findings in each.findings.items():
            results[name].findings.append(findings)
    return results


def _report(
    store: _Store,
    result: _Result,
    limit: int,
    out: Path | None,
    with_index: bool,
    seconds: float,
) -> AuditReport:
    findings = Findings(limit, _part(out, store.name, "driver"), store.name)
    pieces = result.pieces
    newest_ms = max((piece.newest_timestamp_ms for piece in pieces), default=0)
    findings.add(audit_log_files(store.files, in_use=store.in_use))
    findings.add(audit_queue_files(store.files, in_use=store.in_use))
    if pieces:
        if not store.in_use:
            findings.add(audit_checkpoint(store.files, newest_ms))
        findings.add(audit_config(store.files))
    if store.is_at_rest:
        findings.add(audit_end(store.files, store.plan.bounds.end_offset))
    for found_by_task in result.findings:
        findings.take(found_by_task)
    runs = by_queue(run for piece in pieces for run in piece.result.runs)
    damage = [each for piece in pieces for each in piece.result.damage]
    damage += lost_files(store.files)
    units = sum(run.end - run.begin for found in runs.values() for run in found)
    unnamed = store.queued_offset <= store.plan.bounds.min_offset
    if units and unnamed and not store.in_use and not any(store.files.queue_directories()):
        findings.add([{"kind": "unit", "count": units, "problem": "there are no consume queues"}])
    unaccounted_units(store.plan, runs, damage, findings, at_rest=store.is_at_rest)
    if with_index:
        _report_index(store, pieces, findings)
    findings.close()
    return AuditReport(
        store=store.name,
        log_bytes=sum(piece.cost for piece in pieces),
        records=sum(piece.result.records for piece in pieces),
        units=units,
        keys=sum(piece.keys.compared for piece in pieces),
        doubled_keys=sum(piece.keys.doubled for piece in pieces),
        finding_count=findings.count,
        findings=tuple(findings.named),
        seconds=seconds,
    )


def _report_index(store: _Store, pieces: Sequence[PieceAudit], findings: Findings) -> None:
    unindexed = sum(piece.keys.unindexed for piece in pieces)
    lost = sum(piece.keys.lost for piece in pieces)
    findings.add(
        {
            "kind": "index",
            "file": file.name,
            "problem": "no number of slots fits its length and entries",
        }
        for file in store.index
        if not file.file.slot_count and file.header != IndexHeader()
    )
    if store.is_at_rest:
        audit_entries_after_log(store.with_entries, store.plan.bounds.end_offset, findings)
    if unindexed and (store.with_entries or not store.in_use):  # one may only just have begun
        where = "the index begins after them" if store.with_entries else "there is no index"
        findings.add([{"kind": "index", "count": unindexed, "problem": f"keys not found: {where}"}])
    if lost:
        where = "the index ends before them, and the checkpoint says that it had them"
        findings.add([{"kind": "index", "count": lost, "problem": f"keys not found: {where}"}])
