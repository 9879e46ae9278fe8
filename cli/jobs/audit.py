"""``penstock job audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.failures import ExitCode
from cli.jobs.common import LOCAL, Master, Quiet, run_job
from cli.offline import print_findings
from cli.session import Session, print_json


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
    session, reports = run_job(
        context, "audit_stores", master, directories,
        index=index, findings_to=findings, limit=limit, quiet=quiet,
    )  # fmt: skip
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
