"""``penstock staged``: what applications have committed, and what is staged or stuck."""

from __future__ import annotations

from typing import Any

import typer

from cli.session import session_of


def staged(context: typer.Context) -> None:
    """List staged commits: each application's last commit, and those that are open."""
    session = session_of(context)
    with session.client() as client:
        applications = client.staged_commits()
    rows: list[dict[str, Any]] = []
    for app in applications:
        if app.problem:
            rows.append(_row(app.app_id, -1, "refused", 0, app.problem))
        if app.last is not None:
            rows.append(_row(app.app_id, app.last.version, "committed", app.last.record_count, ""))
        for each in app.open:
            records = sum(stage.record_count for stage in each.stages)
            state = "decided" if each.decided else "staged"
            rows.append(_row(app.app_id, each.version, state, records, each.problem))
    session.show(rows, empty="there are no staged commits", numbers=("version", "records"))


def _row(app_id: str, version: int, state: str, records: int, problem: str) -> dict[str, Any]:
    return {
        "application": app_id,
        "version": version,
        "state": state,
        "records": records,
        "problem": problem,
    }
