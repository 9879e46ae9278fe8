"""``penstock retention``: which files of the log go when, what holds them, and their deletion now."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.records import time_text
from cli.session import counted, session_of
from services.sizes import size_text
from storage.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.values import RetainedFile, RetentionReport

MINUTE_MS: Final = 60_000
MS_PER_HOUR: Final = 3_600_000
DAY_MS: Final = 86_400_000
BYTES_PER_MIB: Final = 1 << 20
KEEPS_ALL: Final = "nothing is deleted: --retention-ms of the writer is 0"


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
    deleted: dict[str, int] = {}
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
                f"Delete the log's files that are older than {_age_text(age_ms)}:"
                f" {_would_go(report, age_ms)}?",
                yes=yes,
            )
            before = report
            report = client.delete_expired(older_than_ms)
            deleted = {
                "deleted_now_file_count": report.deleted_file_count - before.deleted_file_count,
                "deleted_now_bytes": report.deleted_bytes - before.deleted_bytes,
            }
            if not session.as_json:
                session.console().print(_outcome(report, age_ms, **deleted))
    session.show(
        [_row(report, file) for file in report.files],
        json_rows=[dataclasses.asdict(report) | deleted],
        title=_title(report),
        empty="no files",
    )


def _old(report: RetentionReport, age_ms: int) -> list[RetainedFile]:
    """Return the files that are older than that, the oldest first; the newest always stays."""
    since_ms = SystemClock().now_ms() - age_ms
    return list(
        itertools.takewhile(
            lambda file: not file.is_newest and file.modified_ms <= since_ms, report.files
        )
    )


def _would_go(report: RetentionReport, age_ms: int) -> str:
    old = _old(report, age_ms)
    free = list(itertools.takewhile(lambda file: not file.held_by, old))
    size_bytes = sum(file.size_bytes for file in free)
    return f"{counted(len(free), 'file')}, {size_text(size_bytes)}{_held(old)}"


def _outcome(
    report: RetentionReport, age_ms: int, *, deleted_now_file_count: int, deleted_now_bytes: int
) -> str:
    so_far = " so far, and the deletion goes on" if report.is_deleting else ""
    left = _old(report, age_ms)
    held = "" if report.is_deleting else _held(left)
    if not deleted_now_file_count and not left:
        held = f"; none but the newest can be older than {_age_text(age_ms)}"
    return (
        f"{counted(deleted_now_file_count, 'file')} deleted, {size_text(deleted_now_bytes)}{so_far}{held};"
        f" the log begins at {report.min_commit_offset:,}"
    )


def _held(files: Sequence[RetainedFile]) -> str:
    names = sorted({name for file in files for name in file.held_by})
    count = sum(bool(file.held_by) for file in files)
    return f"; {counted(count, 'file')} held by {', '.join(names)}" if names else ""


def _age_text(age_ms: int) -> str:
    """Return an age in the largest unit of which it has at least two, or one."""
    for unit, unit_ms in (("days", DAY_MS), ("hours", MS_PER_HOUR), ("minutes", MINUTE_MS)):
        if age_ms >= unit_ms * 2 or age_ms == unit_ms:
            return f"{age_ms / unit_ms:.4g} {unit if age_ms > unit_ms else unit[:-1]}"
    return f"{age_ms / 1_000:.4g} s"


def _title(report: RetentionReport) -> str:
    state = (
        f"files go {_age_text(report.retention_ms)} after their last change, in the hours"
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
        "modified": time_text(file.modified_ms),
        "goes": "stays: the newest"
        if file.is_newest
        else time_text(file.expires_ms)
        if file.expires_ms
        else "never",
        "held by": ", ".join(f"{name} from {report.holds[name]:,}" for name in file.held_by),
    }
