"""``penstock report``: topics, queues, groups, skew and disk on one page."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import ExitCode, answers_of
from cli.records import time_text
from cli.session import Session, counted, print_json, session_of
from services.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock import Client, GroupLag, StoredQueue
    from penstock.values import RetentionReport

SKEWED: Final = 2.0
"""A topic whose fullest queue has so many times the mean is named as skewed."""
_SKEWED_MIN: Final = 1_000  # messages; fewer say nothing


def report(
    context: typer.Context,
    most: Annotated[
        int, typer.Option("--max", "-n", min=1, help="Topics and groups in each list.")
    ] = 10,
) -> None:
    """Print topics, queues, groups, skew and disk on one page.

    Of topics and groups those with the most messages are listed; --json has all. Skew is how many times the mean the
    fullest queue of a topic has. Exit code 9 if a service does not answer: the page then has what the others say.
    """
    session = session_of(context)
    with session.client() as client:
        found, failed = answers_of(
            {
                "topics": lambda: _topics(client),
                "groups": lambda: _groups(client.traffic_out().lags),
                "disk": lambda: _disk(client.retention()),
                "log": lambda: _log(client),
            }
        )
    problems = [f"{name}: {line}" for name, (line, _) in failed.items()]
    if session.as_json:
        print_json(found | {"problems": problems})
    else:
        _show(session, found, problems, most)
    if problems:
        raise typer.Exit(ExitCode.UNREACHABLE)


def _topics(client: Client) -> list[dict[str, Any]]:
    """Return all topics, those with the most messages first."""
    queues: dict[str, list[StoredQueue]] = defaultdict(list)
    for each in client.stored_queues():
        queues[each.topic].append(each)
    counts = {each.name: each.write_queue_count for each in client.topics()}
    rows = [
        _topic(name, counts.get(name, len(queues[name])), queues[name])
        for name in {*counts, *queues}
    ]
    return sorted(rows, key=lambda row: (-row["messages"], row["topic"]))


def _topic(name: str, write_queues: int, queues: list[StoredQueue]) -> dict[str, Any]:
    kept = [each.max_offset - each.min_offset for each in queues]
    messages, count = sum(kept), max(write_queues, len(kept))
    fullest = max(queues, key=lambda each: each.max_offset - each.min_offset, default=None)
    return {
        "topic": name,
        "queues": write_queues,
        "messages": messages,
        "skew": round(max(kept) * count / messages, 2) if messages else 0.0,
        "fullest_queue": fullest.queue_id if fullest is not None and messages else None,
    }


def _groups(lags: Iterable[GroupLag]) -> list[dict[str, Any]]:
    """Return all groups over all their topics, those that lag the most first."""
    found: dict[str, dict[str, Any]] = {}
    for each in lags:
        row = found.setdefault(
            each.group,
            {"group": each.group, "topics": 0, "lag": 0, "leased": 0, "oldest_ms": 0},
        )
        row["topics"] += 1
        row["lag"] += each.lag
        row["leased"] += each.leased
        if each.oldest_ms:
            row["oldest_ms"] = min(row["oldest_ms"] or each.oldest_ms, each.oldest_ms)
    return sorted(found.values(), key=lambda row: (-row["lag"], row["group"]))


def _disk(retention: RetentionReport) -> dict[str, Any]:
    files = retention.files
    expiring = [each.expires_ms for each in files if each.expires_ms]
    return {
        "files": len(files),
        "bytes": sum(each.size_bytes for each in files),
        "used_percent": retention.used_percent,
        "clean_percent": retention.clean_percent,
        "refuse_percent": retention.refuse_percent,
        "retention_ms": retention.retention_ms,
        "next_expires_ms": min(expiring, default=0),
        "refuses_appends": retention.refuses_appends,
        "problem": retention.problem,
    }


def _log(client: Client) -> dict[str, Any]:
    status = dataclasses.asdict(client.writer_status())
    indexed = client.reader_status().indexed_offset
    appended = status["appended_offset"]
    return {
        "min_commit_offset": status["min_commit_offset"],
        "appended_offset": appended,
        "flushed_behind_bytes": appended - status["flushed_offset"],
        "dispatched_behind_bytes": max(0, appended - status["dispatched_offset"]),
        "indexed_behind_bytes": max(0, appended - indexed),
        "damage_found": status["scrub_finding_count"],
        "pending_timers": status["pending_timer_count"],
        "pending_half_messages": status["pending_half_count"],
    }


def _show(session: Session, found: dict[str, Any], problems: list[str], most: int) -> None:
    console = session.console()

    def say(line: str, style: str = "") -> None:
        console.print(line, markup=False, soft_wrap=True, style=style)

    if "log" in found:
        log = found["log"]
        say(
            f"log: {size_text(log['appended_offset'] - log['min_commit_offset'])} from commit offset"
            f" {log['min_commit_offset']:,}; flushed {size_text(log['flushed_behind_bytes'])},"
            f" dispatched {size_text(log['dispatched_behind_bytes'])}, indexed"
            f" {size_text(log['indexed_behind_bytes'])} behind"
        )
        say(
            f"damage found: {log['damage_found']:,}; delayed messages: {log['pending_timers']:,};"
            f" half messages: {log['pending_half_messages']:,}"
        )
    if "disk" in found:
        for line in _disk_lines(found["disk"]):
            say(line)
    if "topics" in found:
        _show_topics(session, found["topics"], most)
    if "groups" in found:
        groups = found["groups"]
        behind = sum(bool(each["lag"]) for each in groups)
        session.show(
            [
                {name: value for name, value in each.items() if name != "oldest_ms"}
                | {"oldest": time_text(each["oldest_ms"]) if each["oldest_ms"] else ""}
                for each in groups[:most]
            ],
            title=f"{counted(len(groups), 'group')}, {behind:,} behind",
            empty="no consumer group has progress",
        )
    for problem in problems:
        say(problem, "red")


def _disk_lines(disk: dict[str, Any]) -> list[str]:
    kept = "for ever"
    if disk["retention_ms"]:
        kept = f"for {disk['retention_ms'] / 3_600_000:,.0f} h"
        if disk["next_expires_ms"]:
            kept += f", the oldest until {time_text(disk['next_expires_ms'])}"
    line = (
        f"disk: {counted(disk['files'], 'file')} of the log, {size_text(disk['bytes'])}, kept {kept}; the disk is"
        f" {disk['used_percent']} % full, appends are refused above {disk['refuse_percent']} %"
    )
    return [line, f"disk: {disk['problem']}"] if disk["problem"] else [line]


def _show_topics(session: Session, topics: list[dict[str, Any]], most: int) -> None:
    messages, queues = sum(each["messages"] for each in topics), sum(e["queues"] for e in topics)
    session.show(
        [
            each | {"fullest_queue": "" if each["fullest_queue"] is None else each["fullest_queue"]}
            for each in topics[:most]
        ],
        title=f"{counted(len(topics), 'topic')}, {counted(queues, 'queue')}, {counted(messages, 'message')}",
        empty="no topics yet",
    )
    skewed = [
        each
        for each in topics
        if each["skew"] >= SKEWED and each["messages"] >= _SKEWED_MIN and each["queues"] > 1
    ]
    if skewed:
        names = ", ".join(f"{each['topic']} ({each['skew']:g})" for each in skewed[:most])
        more = f" and {len(skewed) - most:,} more" if len(skewed) > most else ""
        session.console().print(
            f"skewed, the fullest queue has {SKEWED:g} times the mean or more: {names}{more}",
            markup=False, soft_wrap=True, style="yellow",
        )  # fmt: skip
