"""``penstock status``: how far each service is, and what consumer groups have in hand."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import typer

from cli.failures import ExitCode, answers_of
from cli.records import time_text
from cli.session import Session, print_json, session_of

if TYPE_CHECKING:
    from penstock import Client


_TIMES: Final = ("scrub_completed_ms", "next_timer_due_ms", "oldest_half_ms")


def status(context: typer.Context) -> None:
    """Show positions of writer, reader and indexer, and what groups have leased; exit code 9 if one does not answer, 11 if
    the user lacks the right to one.
    """
    session = session_of(context)
    with session.client() as client:
        found, failed = answers_of(
            {
                "writer": lambda: dataclasses.asdict(client.writer_status()),
                "reader": lambda: dataclasses.asdict(client.reader_status()),
                "indexer": lambda: dataclasses.asdict(client.indexer_status()),
                "leases": lambda: _leases(client),
            }
        )
    found = {
        name: found[name] if name in found else {"problem": failed[name][0]}
        for name in ("writer", "reader", "indexer", "leases")
    }
    groups = found["leases"].pop("groups", [])
    if session.as_json:
        print_json(found | {"groups": groups})
    else:
        _show(session, found, groups)
    codes = {code for _, code in failed.values()}
    if codes:  # who does not answer comes first
        raise typer.Exit(ExitCode.DENIED if codes == {ExitCode.DENIED} else ExitCode.UNREACHABLE)


def _leases(client: Client) -> dict[str, Any]:
    """Return the state of the journal, and of each group that has messages in hand, waiting or dead."""
    leases = client.lease_status()
    dead = {each.group: each for each in client.dead_letter_counts()}
    handed_out = {each.group: each for each in leases.groups}
    groups = []
    for name in sorted({*dead, *handed_out}):
        held, letters = handed_out.get(name), dead.get(name)
        counts = {
            "leased": held.leased if held else 0,
            "waiting": held.waiting if held else 0,
            "dead_letters": letters.messages if letters else 0,
            "to_resend": letters.to_resend if letters else 0,
        }
        if any(counts.values()):
            groups.append({"group": name, **counts})
    return {"journal_bytes": leases.journal_bytes, "problem": leases.problem, "groups": groups}


def _row(service: str, field: str, value: Any) -> dict[str, Any]:
    """Return a value for people: of Unix milliseconds the time, of 0 that there is none."""
    name = field.replace("_", " ")
    if field in _TIMES:
        name, value = name.removesuffix(" ms"), time_text(value) if value else "none"
    return {"service": service, "field": name, "value": value}


def _show(session: Session, found: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    rows = [
        _row(name, field, value)
        for name, fields in found.items()
        for field, value in fields.items()
        if value != ""
    ]
    session.show(rows, numbers=("value",))
    if groups:
        session.show(groups, title="Messages in the hands of groups")
