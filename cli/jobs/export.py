"""``penstock job export``."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.failures import ExitCode
from cli.jobs.spark import LOCAL, Master, Quiet, run_job, values
from cli.times import Since, Until


def export(
    context: typer.Context,
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...", help="Store directories, which may be in use, or URLs of copies."
        ),
    ],
    to: Annotated[str, typer.Option(help="Directory of the export; a second run continues there.")],
    file_format: Annotated[
        str, typer.Option("--format", help="parquet, iceberg or delta.")
    ] = "parquet",
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic; may be given several times.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(help="Only topics that match a regular expression.")
    ] = None,
    since: Since = None,
    until: Until = None,
    body: Annotated[bool, typer.Option(help="With bodies.")] = True,
    catalog: Annotated[
        str | None, typer.Option(help="Iceberg catalog's URI; otherwise a file in the directory.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Iceberg table; otherwise penstock.messages.")
    ] = None,
    file_size: Annotated[
        int, typer.Option(min=1, help="MiB of log for one file, before compression.")
    ] = 256,
    max_records: Annotated[int, typer.Option(min=1, help="Records of one file.")] = 10_000_000,
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="Stop where retention took what was not exported.")
    ] = True,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Export messages by topic and day, only what is new; exit code 7 if any were damaged."""
    session, report = run_job(
        context, "export", master, directories, to, format=file_format, topics=topic or (),
        pattern=pattern, since=since, until=until, body=body, catalog=catalog, table=table,
        file_bytes=file_size << 20, max_records_per_file=max_records,
        fail_on_data_loss=fail_on_data_loss, quiet=quiet,
    )  # fmt: skip
    damaged = f"; {report.damaged_count:,} damaged left out" if report.damaged_count else ""
    session.say(
        f"{report.target}: {report.rows:,} messages of {report.topics:,} topics in"
        f" {len(report.files):,} new files, {report.bytes:,} bytes{damaged}; {report.seconds:.1f} s",
        values(
            report, "target", "format", "run", "topics", "files", "bytes", "log_bytes", "seconds",
            messages="rows", damaged="damaged_count", damagedRecords="damaged",
        ),
    )  # fmt: skip
    if report.damaged_count:
        raise typer.Exit(ExitCode.DAMAGED)
