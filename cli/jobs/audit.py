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
from cli.session import Session, print_json, session_of

PLACE = ("store", "kind", "problem", "count")


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
    """Compare log, queues and index of each store; exit code 7 if anything does not agree."""
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
    for finding in report.findings:
        if session.as_json:
            print_json({"store": report.store, **finding})
        else:
            session.console().print(_line(report.store, finding), markup=False)
    named = sum(finding.get("count", 1) for finding in report.findings)
    if named < report.finding_count and not session.as_json:
        left = report.finding_count - named
        session.console().print(
            f"{report.store}  {left:,} more; --findings DIR writes all", markup=False
        )
    twice = f" and {report.doubled_keys:,} indexed twice" if report.doubled_keys else ""
    session.say(
        f"{report.store}: {report.records:,} records, {report.units:,} units,"
        f" {report.keys:,} keys{twice}; {report.finding_count:,} findings; {report.seconds:.1f} s",
        {
            "store": report.store,
            "records": report.records,
            "units": report.units,
            "keys": report.keys,
            "doubledKeys": report.doubled_keys,
            "logBytes": report.log_bytes,
            "findings": report.finding_count,
            "seconds": round(report.seconds, 3),
        },
    )


def _line(store: str, finding: dict[str, Any]) -> str:
    where = "  ".join(f"{name}={value}" for name, value in finding.items() if name not in PLACE)
    times = f"  ({finding['count']:,} of them)" if "count" in finding else ""
    return f"{store}  {finding['kind']:<10} {where}  {finding['problem']}{times}"
