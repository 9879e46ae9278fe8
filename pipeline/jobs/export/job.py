"""The job ``export``: messages of stores as Parquet files by topic and day, or a Delta or Iceberg table.

Where a record goes follows from its queue and its time, so nothing is shuffled: a task reads the ranges
of queues that belong into a file, and writes it. What has been exported is kept in a manifest, so the
next run goes on where this one ended, and a killed run counts once or not at all.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pipeline.errors import InvalidOption
from pipeline.jobs.export.known_stores import ExportedStore, match_stores
from pipeline.jobs.export.manifest import DIRECTORY, Manifest, Ranges, held_export
from pipeline.jobs.export.plan import FILE_BYTES, Choice, FilePlan, plan_export
from pipeline.jobs.export.targets import ExportTarget, is_local, open_target, remove, staging_of
from pipeline.jobs.progress import job_progress
from pipeline.jobs.work import Stores, in_tasks, open_stores, run_tasks
from pipeline.source.options import parse_options
from pipeline.source.schemas import CORRUPT, MESSAGE_COLUMNS, STORE
from storage.clock import unix_ms
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.export.write import FileDone, FileLayout, TaskDone

RECORDS_MAX: Final = 10_000_000
DAMAGED_MAX: Final = 1000
Moment = datetime | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What one run of an export wrote.

    ``damaged`` names the first of the damaged records, which are left out and not asked for again.
    """

    target: str
    format: str
    run: int
    stores: int
    topics: int
    files: tuple[str, ...]
    rows: int
    bytes: int
    log_bytes: int
    damaged_count: int
    damaged: tuple[dict[str, Any], ...]
    seconds: float


def export(
    spark: SparkSession,
    stores: Stores,
    to: str | Path,
    *,
    format: str = "parquet",  # noqa: A002  Spark's own name for it
    topics: Sequence[str] = (),
    pattern: str | None = None,
    since: Moment = None,
    until: Moment = None,
    body: bool = True,
    catalog: str | None = None,
    table: str | None = None,
    file_bytes: int = FILE_BYTES,
    max_records_per_file: int = RECORDS_MAX,
    fail_on_data_loss: bool = True,
    show_progress: bool = False,
) -> ExportReport:
    """Export what has not been exported to ``to`` yet; durable on return.

    ``topics``, or a regular expression that topics match, and store times from ``since`` up to but not
    with ``until`` (Unix milliseconds, or datetimes) choose; everything but light queues otherwise. A file
    is of one topic and day and of about ``file_bytes`` of log. A store may be in use.
    Raises PipelineError: NotAStore, InvalidOption, DataLost where retention took what was not exported.
    """
    began = perf_counter()
    root = _root_of(to)
    if file_bytes < 1 or max_records_per_file < 1:
        option = "file_bytes" if file_bytes < 1 else "max_records_per_file"
        raise InvalidOption(option, "is 1 at least")
    choice = Choice(
        topics=tuple(dict.fromkeys(topics)),
        pattern=pattern,
        since_ms=_milliseconds("since", since),
        until_ms=_milliseconds("until", until),
        fail_on_data_loss=fail_on_data_loss,
    )
    names = [name for name in MESSAGE_COLUMNS if body or name != "body"] + [STORE]
    open_target(format, root, "", catalog, table)
    opened = [ExportedStore.open(_resolved(store)) for store in open_stores(stores)]
    with held_export(root):
        manifest = Manifest.open(root, format, names)
        target = open_target(format, root, manifest.export_id, catalog, table)
        _recover(root, manifest, target)
        match_stores(opened, manifest)
        files, ranges = plan_export(opened, choice, manifest, file_bytes)
        layout = _layout(root, manifest, target, names, max_records_per_file)
        done = _write(spark, files, layout, choice, show_progress=show_progress)
        if ranges:
            _publish(manifest, target, ranges, _made(done), layout)
        shutil.rmtree(staging_of(root), ignore_errors=True)
    made = _made(done)
    return ExportReport(
        target=str(root),
        format=format,
        run=manifest.run,
        stores=len(opened),
        topics=len({file.topic for file in made}),
        files=tuple(file.path for file in made),
        rows=sum(file.rows for file in made),
        bytes=sum(file.size for file in made),
        log_bytes=sum(file.cost for file in files),
        damaged_count=sum(each.damaged_count for each in done),
        damaged=tuple(bad for each in done for bad in each.damaged)[:DAMAGED_MAX],
        seconds=perf_counter() - began,
    )


def _root_of(to: str | Path) -> Path:
    if not is_local(to):
        raise InvalidOption("to", f"{to} is not on this machine; give a directory that is mounted")
    root = Path(to).absolute()
    if root.exists() and not root.is_dir():
        raise InvalidOption("to", f"{to} is a file; give a directory")
    if root.exists() and any(root.iterdir()) and not (root / DIRECTORY).is_dir():
        raise InvalidOption("to", f"{to} holds something else; name a new directory")
    return root


def _resolved(store: StoreView) -> StoreView:
    """Name a store by one path, however it was given: it stands in the rows, and names a broker's."""
    if store.location.is_url:
        return store
    return StoreView.open(store.paths.root.resolve())


def _milliseconds(option: str, moment: Moment) -> int | None:
    if not isinstance(moment, datetime):
        return moment
    try:
        return unix_ms(moment)
    except ValueError as error:
        raise InvalidOption(option, str(error)) from error


def _recover(root: Path, manifest: Manifest, target: ExportTarget) -> None:
    """Finish or undo what a killed run left."""
    if manifest.pending is not None:
        run, files = manifest.pending["run"], manifest.pending["files"]
        if not files or target.is_published(run, files):
            manifest.finish()
        else:
            remove(root, files)
            manifest.undo()
    shutil.rmtree(staging_of(root), ignore_errors=True)


def _write(
    spark: SparkSession,
    files: Sequence[FilePlan],
    layout: FileLayout,
    choice: Choice,
    *,
    show_progress: bool,
) -> list[TaskDone]:
    """Write the files where nobody looks for them yet."""
    from pipeline.jobs.export.write import write_files

    total = sum(file.cost for file in files)
    options = parse_options({"store": "-", "failOnDataLoss": str(choice.fail_on_data_loss).lower()})
    with job_progress(spark, "export", total_bytes=total, show=show_progress) as progress:
        write = partial(write_files, options=options, layout=layout, count=progress.counter.add)
        return run_tasks(spark, in_tasks(spark, files), write)


def _made(done: Sequence[TaskDone]) -> list[FileDone]:
    return [file for each in done for file in each.files]


def _publish(
    manifest: Manifest,
    target: ExportTarget,
    ranges: Ranges,
    made: Sequence[FileDone],
    layout: FileLayout,
) -> None:
    """Make the files part of the export; what is killed in here, the next run ends."""
    files = [asdict(file) for file in made]
    manifest.begin(ranges, files)
    if files:
        target.publish(manifest.run + 1, files, layout.schema)
    manifest.finish()


def _layout(
    root: Path, manifest: Manifest, target: ExportTarget, names: Sequence[str], rows_max: int
) -> FileLayout:
    import pyarrow as pa

    from pipeline.jobs.export.write import DAY, FileLayout
    from pipeline.jobs.parquet_files import arrow_schema
    from pipeline.source.schemas import Columns

    kinds = {**MESSAGE_COLUMNS, STORE: "string", CORRUPT: "string"}
    read = arrow_schema({name: kinds[name] for name in (*names, CORRUPT)})
    fields = [field for field in read if field.name != CORRUPT and field.name not in target.in_path]
    if DAY not in target.in_path:
        fields.append(pa.field(DAY, pa.date32()))
    return FileLayout(
        directory=str(staging_of(root)),
        # Tasks of a killed run may still be writing: names of their own keep them out of this one.
        run=f"{manifest.export_id}-{manifest.run + 1:06d}-{secrets.token_hex(3)}",
        columns=Columns(tuple(read.names), read),
        schema=pa.schema(fields),
        rows_max=rows_max,
        in_path=target.in_path,
    )
