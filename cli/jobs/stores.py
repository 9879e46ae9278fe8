"""What ``penstock job merge|split|compact|replay`` say of the stores that they made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from cli.failures import ExitCode
from cli.session import Session, print_json

if TYPE_CHECKING:
    from pipeline.jobs.new_store.new_store import NewStore
    from storage.view.log.walk import DamagedRange


def store_value(store: NewStore) -> dict[str, Any]:
    """Return a store as JSON has it."""
    return {
        "store": store.path, "records": store.records, "logBytes": store.log_bytes,
        "topics": store.topics, "queues": store.queues,
        "renumbered": [list(key) for key in store.renumbered],
        "droppedOffsets": list(store.dropped_offsets),
    }  # fmt: skip


def store_line(store: NewStore) -> str:
    """Return a store as one line."""
    moved = f", {len(store.renumbered):,} of them renumbered" if store.renumbered else ""
    return (
        f"{store.path}: {store.records:,} messages in {store.queues:,} queues{moved},"
        f" {store.log_bytes:,} bytes of log"
    )


def print_stores(session: Session, stores: Iterable[NewStore]) -> None:
    """Print each store, and which places of consumers went."""
    for store in stores:
        if session.as_json:
            print_json(store_value(store))
            continue
        console = session.console()
        console.print(store_line(store), markup=False)
        for line in store.dropped_offsets:
            console.print(f"  dropped the place of {line}", markup=False, style="yellow")


def damage_value(damage: DamagedRange) -> dict[str, Any]:
    """Return a damaged range of a log as JSON has it."""
    return {"begin": damage.begin_offset, "end": damage.end_offset, "reason": damage.reason}


def print_damage(session: Session, found: Iterable[tuple[str, DamagedRange]]) -> None:
    """Print what was damaged and left out, and end with the exit code for it if anything was."""
    found_any = False
    for store, damage in found:
        found_any = True
        if session.as_json:
            print_json({"store": store, **damage_value(damage)})
        else:
            session.console().print(
                f"{store}: left out {damage.end_offset - damage.begin_offset:,} damaged bytes at"
                f" commit offset {damage.begin_offset}: {damage.reason}",
                markup=False,
                style="red",
            )
    if found_any:
        raise typer.Exit(ExitCode.DAMAGED)
