"""``penstock job NAME``: the jobs of docs/pipeline.md, run with Spark on this machine or a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.failures import ExitCode
from cli.job_common import LOCAL, Master, failures_told, start_spark
from cli.session import print_json, session_of

app = typer.Typer(
    help="Jobs over whole stores, with Spark (make setup-spark).", no_args_is_help=True
)


@app.command()
def rebuild(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Store directory, ours or a broker's.")],
    target: Annotated[Path, typer.Argument(help="New directory for the consume queues.")],
    master: Master = LOCAL,
) -> None:
    """Make the consume queues of a store anew from its log, in a new directory."""
    with failures_told():
        from pipeline import rebuild as run

        report = run(start_spark(master), directory, target)
    value = {
        "target": report.target, "records": report.records, "units": report.units,
        "queues": report.queues, "logBytes": report.log_bytes,
        "holes": [hole._asdict() for hole in report.holes],
        "gaps": [[*key, begin, end] for key, begin, end in report.gaps],
        "seconds": round(report.seconds, 3),
    }  # fmt: skip
    session_of(context).say(
        f"{report.units:,} units of {report.queues:,} queues in {report.target};"
        f" {len(report.holes)} damaged ranges, {len(report.gaps)} gaps; {report.seconds:.1f} s",
        value,
    )
    if report.holes or report.gaps:
        raise typer.Exit(ExitCode.DAMAGED)


@app.command()
def audit(
    context: typer.Context,
    directories: Annotated[list[Path], typer.Argument(help="Store directories.")],
    master: Master = LOCAL,
) -> None:
    """Compare log, queues and index of each store; exit code 7 if anything does not agree."""
    session = session_of(context)
    bad = False
    with failures_told():
        from pipeline import audit as run

        spark = start_spark(master)
        for directory in directories:
            report = run(spark, directory)
            for finding in report.findings:
                if session.as_json:
                    print_json({"store": report.store, **finding})
                else:
                    session.console().print(_line(report.store, finding), markup=False)
            session.say(
                f"{report.store}: {report.records:,} records, {report.units:,} units,"
                f" {report.keys:,} keys; {len(report.findings):,} findings; {report.seconds:.1f} s",
                {
                    "store": report.store, "records": report.records, "units": report.units,
                    "keys": report.keys, "logBytes": report.log_bytes,
                    "findings": len(report.findings), "seconds": round(report.seconds, 3),
                },
            )  # fmt: skip
            bad = bad or bool(report.findings)
    if bad:
        raise typer.Exit(ExitCode.DAMAGED)


def _line(store: str, finding: dict[str, Any]) -> str:
    where = "  ".join(
        f"{name}={value}" for name, value in finding.items() if name not in ("kind", "problem")
    )
    return f"{store}  {finding['kind']:<7} {where}  {finding['problem']}"
