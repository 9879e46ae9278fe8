"""``penstock job replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.failures import CommandFailed, ExitCode
from cli.jobs.common import LOCAL, Master, Quiet, run_job
from cli.jobs.stores import print_stores
from cli.session import session_of
from cli.times import parsed
from services.times import parse_time_ms


def replay(
    context: typer.Context,
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Store directory, or URL of a copy.")
    ],
    topics: Annotated[str, typer.Argument(metavar="TOPIC[,TOPIC]", help="What to replay.")],
    target: Annotated[
        Path | None, typer.Option("--to", help="New directory for a new store.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Writer of a live store.")
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(help="Topic to write to; it must exist at an endpoint.")
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(metavar="TIME", parser=parsed(parse_time_ms), help="Stored then or later."),
    ] = None,
    until: Annotated[
        int | None,
        typer.Option(metavar="TIME", parser=parsed(parse_time_ms), help="Stored before then."),
    ] = None,
    tags: Annotated[str, typer.Option(help="One of these tags: 'a || b'.")] = "*",
    key: Annotated[str | None, typer.Option(help="With this key, or message id.")] = None,
    replay_id: Annotated[
        str | None,
        typer.Option(help="Name of the replay; one that was done under a name is not done again."),
    ] = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Write messages again, marked, into a topic of a live store or into a new store."""
    if (target is None) == (endpoint is None):
        raise CommandFailed(
            "give either --endpoint, the writer of a live store, or --to, a new directory",
            ExitCode.USAGE,
        )
    if endpoint is not None and to_topic is None:
        raise CommandFailed("with --endpoint give --to-topic, a topic there", ExitCode.USAGE)
    named = [name for name in topics.split(",") if name]
    session, report = run_job(
        context, "replay", master, directory, named, to_topic=to_topic, endpoint=endpoint,
        tls=session_of(context).tls, target=target, begin_ms=since, end_ms=until, tags=tags,
        key=key, replay_id=replay_id, quiet=quiet,
    )  # fmt: skip
    if report.store is not None:
        print_stores(session, [report.store])
        return
    line = f"{report.messages:,} messages in {to_topic} as {report.replay_id}"
    if report.already:
        line = f"nothing to do: {report.replay_id} was done before"
    session.say(
        line,
        {
            "messages": report.messages, "already": report.already, "replayId": report.replay_id,
            "seconds": round(report.seconds, 3),
        },
    )  # fmt: skip
