"""``penstock timers`` and ``penstock recall HANDLE``: messages that wait for their time."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cli.session import session_of
from cli.times import local_time_text

MINUTE: Final = 60
DAY: Final = 86_400
EDGES_S: Final = {
    "1 s": 1, "1 min": MINUTE, "1 h": 60 * MINUTE, "1 day": DAY, "3 days": 3 * DAY, "40 days": 40 * DAY,
}  # fmt: skip


def timers(context: typer.Context) -> None:
    """Count delayed messages by when they are due.

    A recalled message and its recall count until the second in which it was due is over.
    """
    session = session_of(context)
    with session.client() as client:
        counts = client.timers(within_s=list(EDGES_S.values()))
    next_due = "nothing waits"
    if counts.next_due_ms:
        next_due = f"the next is due at {local_time_text(counts.next_due_ms)}"
    due_counts = {label: counts.due_within_s[edge] for label, edge in EDGES_S.items()}
    within = ", ".join(f"{count} within {label}" for label, count in due_counts.items())
    session.say(
        f"[cyan]{counts.pending_count}[/] wait, {next_due}; with a time: {within}\n"
        f"since the writer's start: {counts.delivered_count} delivered, {counts.recalled_count} recalled,"
        f" {counts.topic_deleted_count} of deleted topics, {counts.damaged_count} damaged,"
        f" {counts.repeated_count} found delivered already",
        {
            "pending": counts.pending_count,
            "next_due_ms": counts.next_due_ms,
            "due_within": due_counts,
            "delivered": counts.delivered_count,
            "recalled": counts.recalled_count,
            "topic_deleted": counts.topic_deleted_count,
            "damaged": counts.damaged_count,
            "repeated": counts.repeated_count,
        },
    )


def recall(
    context: typer.Context,
    handle: Annotated[str, typer.Argument(help="The whole handle that pub printed.")],
    topic: Annotated[str, typer.Option(help="Refuse a handle of another topic.")] = "",
) -> None:
    """Cancel a delayed message before it is delivered."""
    session = session_of(context)
    with session.client() as client:
        unique_key = client.recall(handle, topic=topic)
    session.say(f"recalled {unique_key}", {"unique_key": unique_key})
