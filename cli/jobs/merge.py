"""``penstock job merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.jobs.common import LOCAL, Master, Quiet, run_job
from cli.jobs.stores import print_damage, print_stores

LogFileSize = Annotated[
    int | None,
    typer.Option(help="Bytes of a commit log file; otherwise as the store's that is read."),
]


def merge(
    context: typer.Context,
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Store directories, or URLs of copies.")
    ],
    target: Annotated[Path, typer.Option("--to", help="New directory for the new store.")],
    without: Annotated[
        list[str] | None, typer.Option(help="Leave a topic out; may be given several times.")
    ] = None,
    log_file_size: LogFileSize = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Make one new store of several, in the order of their messages' store times."""
    session, report = run_job(
        context, "merge", master, directories, target,
        without=without or [], log_file_size=log_file_size, quiet=quiet,
    )  # fmt: skip
    print_stores(session, [report.store])
    print_damage(session, report.damage)
