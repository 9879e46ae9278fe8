"""``penstock offsets`` and ``penstock status``: how far consumers and the store itself are."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final

import typer

from cli.failures import CommandFailed, ExitCode, describe
from cli.session import print_json, session_of

PANEL: Final = "Topics and messages"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("offsets", rich_help_panel=PANEL)(offsets)
    app.command("status", rich_help_panel="Services")(status)


def offsets(
    context: typer.Context,
    group: Annotated[str | None, typer.Argument(help="Consumer group; none: all groups.")] = None,
    topic: Annotated[str, typer.Option(help="Only this topic.")] = "",
    reset: Annotated[
        str | None,
        typer.Option(metavar="QUEUE=OFFSET", help="Set the group's offset in a queue of --topic."),
    ] = None,
) -> None:
    """Show what consumer groups have committed and how far they lag; exit code 8 if GROUP has not."""
    session = session_of(context)
    with session.client() as client:
        if reset is not None:
            queue, equals, offset = reset.partition("=")
            if not (group and topic and equals and queue.isdecimal() and offset.isdecimal()):
                raise CommandFailed("--reset QUEUE=OFFSET needs GROUP and --topic", ExitCode.USAGE)
            client.commit_offset(group, topic, int(queue), int(offset))
        groups = [group] if group else client.groups()
        rows = [
            {
                "group": name,
                "topic": each.topic,
                "queue": each.queue_id,
                "committed": each.queue_offset,
                "min_offset": each.min_offset,
                "max_offset": each.max_offset,
                "lag": each.lag,
            }
            for name in groups
            for each in client.offsets(name, topic)
        ]
    where = f" in topic {topic}" if topic else ""
    if group and not rows:
        raise CommandFailed(f"group {group} has committed nothing{where}", ExitCode.NOT_FOUND)
    session.show(rows, empty=f"no group has committed anything{where}")


def status(context: typer.Context) -> None:
    """Show the three services' positions; exit code 9 if one does not answer."""
    from penstock.errors import PenstockError

    session = session_of(context)
    unreachable = 0
    found: dict[str, dict[str, Any]] = {}
    with session.client() as client:
        for name, ask in (
            ("writer", client.writer_status),
            ("reader", client.reader_status),
            ("indexer", client.indexer_status),
        ):
            try:
                found[name] = dataclasses.asdict(ask())
            except PenstockError as error:
                unreachable += 1
                found[name] = {"problem": describe(error)[0]}
    if session.as_json:
        print_json(found)
    else:
        rows = [
            {"service": name, "field": field.replace("_", " "), "value": value}
            for name, fields in found.items()
            for field, value in fields.items()
            if value != ""
        ]
        session.show(rows, numbers=("value",))
    if unreachable:
        raise typer.Exit(ExitCode.UNREACHABLE)
