"""``penstock sub TOPIC``: read a topic, from where one likes, to its end or on and on."""

from __future__ import annotations

import contextlib
import itertools
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import topic_names
from cli.failures import CommandFailed, ExitCode
from cli.records import body_text, damage_json, record_json, shown_body, time_text
from cli.session import Session, print_json, session_of
from cli.times import parsed
from services.bodies import printable
from services.times import parse_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from penstock import Client, Record
    from storage.message import Damage


def sub(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic to read.", autocompletion=topic_names)],
    start: Annotated[
        Any,
        typer.Option(
            "--from",
            metavar="PLACE",
            parser=parsed(parse_place),
            help="earliest, latest, a queue offset, or a time: 15m (ago), ISO 8601 (without a zone: local), Unix ms."
            " A group's committed offset wins over this.",
        ),
    ] = "earliest",
    queue: Annotated[
        list[int] | None, typer.Option("--queue", "-q", help="Only this queue; may be repeated.")
    ] = None,
    tag: Annotated[str, typer.Option(help="Only these tags: 'a' or 'a || b'.")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more at the end.")
    ] = False,
    group: Annotated[
        str, typer.Option("--group", "-g", help="Resume where this group is; commit as it goes.")
    ] = "",
    most: Annotated[
        int, typer.Option("--max", "-n", min=0, help="Stop after so many; 0: never.")
    ] = 0,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="Print bodies only, one a line.")
    ] = False,
) -> None:
    """Print the messages of a topic. Exit code 7 if a damaged one was met.

    The first 100 characters of a body are shown; --bodies and --json print it whole.
    """
    session = session_of(context)
    damaged = 0

    def on_damaged(_topic: str, queue_id: int, damage: Damage) -> None:
        nonlocal damaged
        damaged += 1
        if session.as_json:
            print_json(damage_json(damage, topic=topic, queue_id=queue_id))
            sys.stdout.flush()
        else:
            session.console(sys.stderr).print(
                f"[red]damaged[/] queue {queue_id} offset {damage.queue_offset}: {damage.reason}"
            )

    with session.client() as client, contextlib.ExitStack() as opened:
        if queue:
            _check_queues(client, topic, queue)
        records = opened.enter_context(
            client.consume(
                topic,
                group=group,
                queues=queue,
                start=start,
                tag=tag,
                follow=follow,
                on_damaged=on_damaged,
            )
        )
        console = session.console()
        for record in itertools.islice(records, most or None):
            _print(session, console, record, bodies=bodies)
            if follow or group:  # the next call may commit it
                sys.stdout.flush()
        if group:
            records.commit()  # what was written is consumed, the last one too
    if damaged:
        raise typer.Exit(ExitCode.DAMAGED)


def _check_queues(client: Client, topic: str, queue_ids: Sequence[int]) -> None:
    """Raise CommandFailed for a queue that consumers do not read; a client reads nothing there, and says nothing."""
    from penstock.calls.topics import queues_to_read

    known = client.run(queues_to_read(topic))
    missing = [queue_id for queue_id in queue_ids if queue_id not in known]
    if missing:
        raise CommandFailed(
            f"queue {missing[0]} is not among the {len(known)} read queues of topic {topic!r}",
            ExitCode.USAGE,
        )


def _print(session: Session, console: Console, record: Record, *, bodies: bool) -> None:
    if session.as_json:
        print_json(record_json(record))
    elif bodies:
        sys.stdout.write(record.body_or_stored()[0].decode(errors="backslashreplace") + "\n")
    elif not console.is_terminal:
        labels = _labels(record)
        moment = time_text(record.store_timestamp_ms)
        shown = f"({', '.join(labels)}) " if labels else ""
        sys.stdout.write(
            f"{moment} {record.queue_id}/{record.queue_offset} {shown}{shown_body(record, body_text)}\n"
        )
    else:
        console.print(
            f"[dim]{time_text(record.store_timestamp_ms)}[/]"
            f" [cyan]{record.queue_id}[/]/[cyan]{record.queue_offset}[/]",
            end=" ",
        )
        if labels := _labels(record):
            console.print(f"({', '.join(labels)})", style="yellow", markup=False, end=" ")
        console.print(shown_body(record, body_text), markup=False, soft_wrap=True)


def _labels(record: Record) -> list[str]:
    return [printable(part) for part in (record.tag, " ".join(record.keys)) if part]
