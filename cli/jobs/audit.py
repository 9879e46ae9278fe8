"""``penstock job audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.failures import ExitCode
from cli.jobs.common import (
    LOCAL,
    Master,
    Quiet,
    failures_in_one_line,
    shows_progress,
    start_spark,
)
from cli.offline import print_findings
from cli.session import Session, print_json, session_of


def audit(
    context: typer.Context,
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Store directories, or URLs of copies.")
    ],
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
    session = session_of(context)
    with failures_in_one_line():
        from pipeline import audit_stores

        reports = audit_stores(
            start_spark(session, master),
            directories,
            index=index,
            findings_to=findings,
            limit=limit,
            show_progress=shows_progress(session, quiet),
        )
    for report in reports:
        _print(session, report)
    if any(report.finding_count for report in reports):
        raise typer.Exit(ExitCode.DAMAGED)


def _print(session: Session, report: Any) -> None:
    if session.as_json:
        for finding in report.findings:
            print_json({"store": report.store, **finding})
    else:
        print_findings(session, list(report.findings))
    left = report.finding_count - len(report.findings)
    if left and not session.as_json:
        session.console().print(
            f"{report.store}  {left:,} more; --findings DIR writes all", markup=False
        )
    session.say(
        f"{report.store}: {report.records:,} records, {report.units:,} units,"
        f" {report.keys:,} keys; {report.finding_count:,} findings; {report.seconds:.1f} s",
        {
            "store": report.store,
            "records": report.records,
            "units": report.units,
            "keys": report.keys,
            "logBytes": report.log_bytes,
            "findings": report.finding_count,
            "seconds": round(report.seconds, 3),
        },
    )
