"""``penstock offsets``: how far consumers are."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import session_of


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
