"""``penstock job rebuild``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.failures import CommandFailed, ExitCode
from cli.jobs.common import LOCAL, Master, Quiet, run_job
from cli.jobs.stores import damage_value


def rebuild(
    context: typer.Context,
    directories: Annotated[
        list[Path], typer.Argument(help="Store directories, ours or a broker's.")
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            "--to", help="New directory; of several stores, one directory for each in it."
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Replace the stores' own files; they must be stopped."),
    ] = False,
    what: Annotated[str, typer.Option(help="queues, index or all.")] = "all",
    queue_file_size: Annotated[
        int | None, typer.Option(help="Bytes of a queue file; otherwise as the store has them.")
    ] = None,
    index_slots: Annotated[
        int | None, typer.Option(help="Slots of an index file; goes with --index-entries.")
    ] = None,
    index_entries: Annotated[int | None, typer.Option(help="Entries of an index file.")] = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Rebuild consume queues and index files from the log; exit code 7 if the log is damaged."""
    if in_place == (target is not None):
        raise CommandFailed(
            "give either --to, a new directory, or --in-place, for stores that are stopped",
            ExitCode.USAGE,
        )
    alone = len(directories) == 1
    session, reports = run_job(
        context, "rebuild" if alone else "rebuild_stores", master,
        directories[0] if alone else directories, target,
        what=what, in_place=in_place, consume_queue_file_size=queue_file_size,
        index_slot_count=index_slots, index_entry_count=index_entries, quiet=quiet,
    )  # fmt: skip
    if alone:
        reports = [reports]
    for report in reports:
        session.say(_line(report), _value(report))
    if any(report.damage or report.gaps or report.moved for report in reports):
        raise typer.Exit(ExitCode.DAMAGED)


def _line(report: Any) -> str:
    trouble = ""
    if report.damage or report.gaps or report.moved:
        trouble = (
            f"; {len(report.damage):,} damaged ranges, {len(report.gaps):,} gaps,"
            f" {report.moved:,} records with a wrong queue offset"
        )
    return (
        f"{report.target}: {report.units:,} units of {report.queues:,} queues,"
        f" {report.keys:,} keys in {report.index_files:,} index files{trouble};"
        f" {report.seconds:.1f} s"
    )


def _value(report: Any) -> dict[str, Any]:
    return {
        "store": report.store,
        "target": report.target,
        "records": report.records,
        "units": report.units,
        "queues": report.queues,
        "keys": report.keys,
        "indexFiles": report.index_files,
        "logBytes": report.log_bytes,
        "holes": [damage_value(damage) for damage in report.damage],
        "gaps": [[*key, begin, end] for key, begin, end in report.gaps],
        "moved": report.moved,
        "seconds": round(report.seconds, 3),
    }
