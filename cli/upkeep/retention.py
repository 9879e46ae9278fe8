"""``penstock retention``: which files of the log go when, what holds them, and their deletion now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import counted, print_json, session_of

if TYPE_CHECKING:
    from penstock.values import RetainedFile, RetentionReport

MS_PER_HOUR: Final = 3_600_000
BYTES_PER_MIB: Final = 1 << 20
KEEPS_ALL: Final = "nothing is deleted: --retention-ms of the writer is 0"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("retention", rich_help_panel="Services")(retention)


def retention(
    context: typer.Context,
    now: Annotated[
        bool, typer.Option("--now", help="Delete what has expired at once, at any hour.")
    ] = False,
    older_than_hours: Annotated[
        float | None,
        typer.Option(min=0, help="With --now: delete what is older than this instead."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Show which files of the commit log will be deleted when, and what holds them."""
    session = session_of(context)
    if older_than_hours is not None and not now:
        raise CommandFailed("--older-than-hours is for --now", ExitCode.USAGE)
    with session.client() as client:
        report = client.retention()
        if now:
            older_than_ms = (
                None if older_than_hours is None else round(older_than_hours * MS_PER_HOUR)
            )
            age_ms = report.retention_ms if older_than_ms is None else older_than_ms
            if older_than_ms is None and not age_ms:
                raise CommandFailed(f"{KEEPS_ALL}; give --older-than-hours", ExitCode.USAGE)
            session.confirm(
                f"Delete the log's files that are older than {age_ms / MS_PER_HOUR:g} hours?",
                yes=yes,
            )
            before = report.deleted_file_count
            report = client.delete_expired(older_than_ms)
            if not session.as_json:
                count = counted(report.deleted_file_count - before, "file")
                so_far = " so far, and the deletion goes on" if report.is_deleting else ""
                session.console().print(
                    f"{count} deleted{so_far}; the log begins at {report.min_commit_offset:,}"
                )
    if session.as_json:
        print_json(as_json(report))
        return
    session.show(
        [_row(report, file) for file in report.files], title=_title(report), empty="no files"
    )


def as_json(report: RetentionReport) -> dict[str, Any]:
    """Return a report with its files as plain values."""
    from dataclasses import asdict

    return asdict(report)


def _title(report: RetentionReport) -> str:
    state = (
        f"files go {report.retention_ms / MS_PER_HOUR:g} hours after their last change, in the hours"
        f" {', '.join(f'{hour:02d}' for hour in report.delete_hours)}"
        f" (disk above {report.clean_percent} %: at any hour; above {report.force_percent} %: at any age)"
        if report.retention_ms
        else KEEPS_ALL
    )
    problem = f"\n{report.problem}" if report.problem else ""
    return f"{state}\ndisk {report.used_percent} % used{problem}"


def _row(report: RetentionReport, file: RetainedFile) -> dict[str, Any]:
    return {
        "begins at": file.start_offset,
        "MiB": round(file.size_bytes / BYTES_PER_MIB, 1),
        "modified": _time(file.modified_ms),
        "goes": "stays: the newest"
        if file.is_newest
        else _time(file.expires_ms)
        if file.expires_ms
        else "never",
        "held by": ", ".join(f"{name} from {report.holds[name]:,}" for name in file.held_by),
    }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
