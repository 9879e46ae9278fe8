"""``penstock query TOPIC KEY``: find messages without a queue."""

from __future__ import annotations

import itertools
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.completion import topic_names
from cli.failures import CommandFailed, ExitCode
from cli.records import damage_json, record_json, record_rows
from cli.session import print_json, session_of
from cli.times import Since, parsed
from services.times import parse_time_ms

if TYPE_CHECKING:
    from storage.message import Damage, UncoveredRange


def query(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic to look in.", autocompletion=topic_names)],
    key: Annotated[str, typer.Argument(help="Business key, or unique id with --unique.")],
    unique: Annotated[bool, typer.Option("--unique", help="KEY is a unique id.")] = False,
    since: Since = None,
    until: Annotated[
        int | None,
        typer.Option(metavar="TIME", parser=parsed(parse_time_ms), help="Stored until."),
    ] = None,
    most: Annotated[int, typer.Option("--max", "-n", min=0, help="At most so many; 0: all.")] = 64,
) -> None:
    """Find messages by key; exit code 8 if there are none. --json prints long bodies whole."""
    session = session_of(context)
    damaged: list[Damage] = []
    uncovered: list[UncoveredRange] = []
    with session.client() as client:
        found = client.query_by_key(
            topic,
            key,
            unique=unique,
            begin=since,
            end=until,
            on_damaged=lambda _topic, _queue, damage: damaged.append(damage),
            on_uncovered=uncovered.append,
        )
        chosen = itertools.islice(found, most or None)
        count = 0
        if session.as_json:
            for record in chosen:
                print_json(record_json(record))
                count += 1
            for damage in damaged:
                print_json(damage_json(damage, topic=topic))
            for missing in uncovered:
                print_json({"uncovered": asdict(missing)})
        else:
            rows = record_rows(chosen)
            count = len(rows)
            if rows:
                session.show(rows)
            for damage in damaged:
                session.console(sys.stderr).print(
                    f"[red]damaged[/] commit offset {damage.commit_offset}: {damage.reason}"
                )
            for missing in uncovered:
                advice = "; it is being rebuilt, ask again later" if missing.file_name else ""
                session.console(sys.stderr).print(f"[red]uncovered[/] {missing}{advice}")
    if damaged or uncovered:
        raise typer.Exit(ExitCode.DAMAGED)
    if not count:
        raise CommandFailed(f"no message of {topic} has the key {key}", ExitCode.NOT_FOUND)
