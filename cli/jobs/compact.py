"""``penstock job compact``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.jobs.common import LOCAL, Master, Quiet, run_job
from cli.jobs.merge import LogFileSize
from cli.jobs.stores import print_damage, print_stores


def compact(
    context: typer.Context,
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Store directory, or URL of a copy.")
    ],
    target: Annotated[Path, typer.Option("--to", help="New directory for store or table.")],
    topics: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Topics to compact; all that users have if not given."),
    ] = None,
    keep_others: Annotated[
        bool, typer.Option("--keep-others", help="Take all other topics along as they are.")
    ] = False,
    keyless: Annotated[
        str, typer.Option(metavar="keep|drop", help="What becomes of messages without a key.")
    ] = "keep",
    keep_tombstones: Annotated[
        bool,
        typer.Option("--keep-tombstones", help="Keep a key's last message if it has no body."),
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", metavar="store|parquet", help="What to write.")
    ] = "store",
    log_file_size: LogFileSize = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Keep the latest message of each topic and key, in a new store or a Parquet table."""
    named = [name for text in topics or [] for name in text.split(",") if name]
    session, report = run_job(
        context, "compact", master, directory, target, topics=named, keep_others=keep_others,
        keyless=keyless, keep_tombstones=keep_tombstones, format=format_,
        log_file_size=log_file_size, quiet=quiet,
    )  # fmt: skip
    session.say(
        f"{report.keys:,} keys, {report.tombstones:,} of them ended by a tombstone;"
        f" {report.records:,} messages in {report.target}; {report.seconds:.1f} s",
        {
            "target": report.target, "records": report.records, "keys": report.keys,
            "tombstones": report.tombstones, "logBytes": report.log_bytes,
            "seconds": round(report.seconds, 3),
        },
    )  # fmt: skip
    print_stores(session, [report.store] if report.store else [])
    print_damage(session, [(str(directory), damage) for damage in report.damage])
