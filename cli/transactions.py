"""``penstock transactions``: what is pending, and its end by hand."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import session_of

_NAMED_MAX: Final = 3
_GONE: Final = ("not found", "committed", "rolled back", "given up", "topic gone")
app = typer.Typer(no_args_is_help=True, help="Transactions that nobody has ended.")
Ids = Annotated[list[str], typer.Argument(help="Transaction ids, as list shows them.")]


@app.command("list")
def list_pending(context: typer.Context) -> None:
    """List pending transactions, the oldest first, at most 10,000."""
    session = session_of(context)
    with session.client() as client:
        pending = client.pending_transactions()
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "transaction": each.transaction_id,
            "topics": list(each.topics) if session.as_json else " ".join(each.topics),
            "messages": each.message_count,
            "age_s": (now_ms - each.born_ms) // 1_000,
            "checks": each.check_count,
            "problem": each.problem,
        }
        for each in pending
    ]
    session.show(
        rows, empty="there are no pending transactions", numbers=("messages", "age_s", "checks")
    )
    if pending.pending_count > len(pending):
        counts = f"{len(pending):,} of {pending.pending_count:,} pending transactions"
        session.console(sys.stderr).print(f"{counts} are listed, the oldest")


@app.command()
def commit(context: typer.Context, transaction_ids: Ids) -> None:
    """Commit transactions: consumers see their messages."""
    _end(context, transaction_ids, commit=True)


@app.command()
def rollback(context: typer.Context, transaction_ids: Ids) -> None:
    """Roll transactions back: nobody ever sees their messages."""
    _end(context, transaction_ids, commit=False)


def _end(context: typer.Context, transaction_ids: list[str], *, commit: bool) -> None:
    session = session_of(context)
    with session.client() as client:
        ended = client.end_transactions(transaction_ids, commit=commit)
    rows = [
        {
            "transaction": each.transaction_id,
            "state": each.state,
            "messages": each.message_count,
            "problem": each.problem,
        }
        for each in ended
    ]
    session.show(rows, empty="nothing was named", numbers=("messages",))
    wanted = "committed" if commit else "rolled back"
    others = [each for each in ended if each.state != wanted]
    if others:
        states = ", ".join(f"{each.transaction_id}: {each.state}" for each in others[:_NAMED_MAX])
        code = ExitCode.NOT_FOUND
        if not all(each.state in _GONE for each in others):
            code = (
                ExitCode.DAMAGED
                if any(each.state == "damaged" for each in others)
                else ExitCode.REFUSED
            )
        raise CommandFailed(
            f"{len(others)} of {len(ended)} are not {wanted} ({states})",
            code,
        )
