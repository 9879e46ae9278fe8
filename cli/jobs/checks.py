"""``penstock job audit`` and ``penstock job rebuild``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.failures import CommandFailed, ExitCode
from cli.jobs.spark import LOCAL, Directories, Master, Quiet, run_job, values
from cli.jobs.stores import damage_value
from cli.offline import print_findings
from cli.session import print_json


def audit(
    context: typer.Context,
    directories: Directories,
    findings: Annotated[
        Path | None,
        typer.Option(help="New directory for all findings, one JSON object a line."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Findings to print of each store.")] = 100,
    index: Annotated[bool, typer.Option(help="Check the index too.")] = True,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Check log, queues and index of each store as doctor does; exit code 7 if anything is found."""
    session, reports = run_job(
        context, "audit_stores", master, directories,
        index=index, findings_to=findings, limit=limit, quiet=quiet,
    )  # fmt: skip
    for report in reports:
        if session.as_json:
            for finding in report.findings:
                print_json({"store": report.store, **finding})
        else:
            print_findings(session, list(report.findings))
            if left := report.finding_count - len(report.findings):
                session.console().print(
                    f"{report.store}  {left:,} more; --findings DIR writes all", markup=False
                )
        session.say(
            f"{report.store}: {report.records:,} records, {report.units:,} units,"
            f" {report.keys:,} keys; {report.finding_count:,} findings; {report.seconds:.1f} s",
            values(
                report, "store", "records", "units", "keys", "log_bytes", "seconds",
                findings="finding_count",
            ),
        )  # fmt: skip
    if any(report.finding_count for report in reports):
        raise typer.Exit(ExitCode.DAMAGED)


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
    wrong = False
    for report in [reports] if alone else reports:
        trouble = ""
        if report.damage or report.gaps or report.moved:
            wrong = True
            trouble = (
                f"; {len(report.damage):,} damaged ranges, {len(report.gaps):,} gaps,"
                f" {report.moved:,} records with a wrong queue offset"
            )
        session.say(
            f"{report.target}: {report.units:,} units of {report.queues:,} queues,"
            f" {report.keys:,} keys in {report.index_files:,} index files{trouble};"
            f" {report.seconds:.1f} s",
            _rebuilt(report),
        )
    if wrong:
        raise typer.Exit(ExitCode.DAMAGED)


def _rebuilt(report: Any) -> dict[str, Any]:
    found = values(
        report, "store", "target", "records", "units", "queues", "keys", "index_files", "log_bytes",
        "moved", "seconds",
    )  # fmt: skip
    return found | {
        "holes": [damage_value(damage) for damage in report.damage],
        "gaps": [[*key, begin, end] for key, begin, end in report.gaps],
    }
