"""``penstock job split``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.jobs.common import LOCAL, Master, Quiet, run_job
from cli.jobs.merge import LogFileSize
from cli.jobs.stores import print_damage, print_stores


def split(
    context: typer.Context,
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Store directory, or URL of a copy.")
    ],
    target: Annotated[
        Path, typer.Option("--to", help="New directory, in which each new store gets one.")
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]A,B", help="Topics of one new store; may be given several times."
        ),
    ] = None,
    rest: Annotated[bool, typer.Option("--rest", help="One more store of all others.")] = False,
    log_file_size: LogFileSize = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Make a new store of each topic of a store, or of each group of topics."""
    session, report = run_job(
        context, "split", master, directory, target,
        topics=topics or [], rest=rest, log_file_size=log_file_size, quiet=quiet,
    )  # fmt: skip
    print_stores(session, report.stores)
    print_damage(session, [(str(directory), damage) for damage in report.damage])
