"""``penstock job profile``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.jobs.common import LOCAL, Master, Quiet, failures_in_one_line, shows_progress, start_spark
from cli.session import Session, print_json, session_of

if TYPE_CHECKING:
    from pipeline.jobs.profile.job import Profile

SPARKS: Final = "▁▂▃▄▅▆▇█"
COLUMNS: Final = 60


def profile(
    context: typer.Context,
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Store directories, or globs in quotes.")
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with plots, too.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Hot keys to show.")] = 20,
    exact_keys: Annotated[
        bool, typer.Option("--exact-keys", help="Count keys exactly, in a second walk.")
    ] = False,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Tell what is in stores: rates, sizes, topics, hot keys, skew of queues, lag of groups."""
    session = session_of(context)
    if html is not None and not html.parent.is_dir():
        raise CommandFailed(f"--html {html}: no such directory: {html.parent}", ExitCode.USAGE)
    with failures_in_one_line():
        from pipeline import profile as run

        found = run(
            start_spark(session, master), directories, top=top, exact_keys=exact_keys,
            show_progress=shows_progress(session, quiet),
        )  # fmt: skip
        if html is not None:
            html.write_text(found.to_html(), encoding="utf-8")
    if session.as_json:
        print_json(found.to_dict())
        return
    _print(session, found)
    if html is not None:
        session.console().print(f"plots: {html}", markup=False)


def _print(session: Session, found: Profile) -> None:
    from pipeline.jobs.progress import size_text

    console = session.console()
    console.print(
        f"{', '.join(found.stores)}: {found.messages:,} messages, {size_text(found.bytes)}"
        f" of records, {len(found.topics):,} topics, {len(found.queues):,} queues",
        markup=False,
    )
    if found.damaged_bytes:
        console.print(
            f"{size_text(found.damaged_bytes)} cannot be read: run penstock job audit", style="red"
        )
    if not found.messages:
        return
    sizes = ", ".join(f"{name} {size:,}" for name, size in found.size_quantiles.items())
    console.print(f"sizes: {found.size_min:,} to {found.size_max:,} bytes; {sizes}")
    console.print(f"{_time(found.begin_ms)} {_rates(found)} {_time(found.end_ms)} UTC")
    session.show(
        [
            {
                "topic": topic.topic, "messages": f"{topic.messages:,}",
                "bytes": size_text(topic.bytes), "p50": f"{topic.quantiles.get('p50', 0):,}",
                "p99": f"{topic.quantiles.get('p99', 0):,}", "queues": topic.queues,
                "skew": f"{topic.skew:.2f}", "fullest_queue": topic.fullest_queue,
            }
            for topic in found.topics
        ],
        title="Topics",
        numbers=("messages", "bytes", "p50", "p99", "skew", "fullest_queue"),
    )  # fmt: skip
    about = "" if found.keys_exact else "about "
    missed = f"; each at most {found.hot_keys_missed:,} too few" if found.hot_keys_missed else ""
    session.show(
        [
            {"key": key.key, "topic": key.topic, "messages": f"{key.messages:,}"}
            for key in found.hot_keys
        ],
        title=f"Hot keys, of {about}{found.distinct_keys:,}{missed}",
        empty="no message has a key",
        numbers=("messages",),
    )
    session.show(
        [_lag(lag) for lag in found.groups],
        title="Consumer groups",
        empty="no group has committed offsets",
        numbers=("lag", "lost", "worst_queue"),
    )


def _lag(lag: Any) -> dict[str, Any]:
    return {
        "group": lag.group, "topic": lag.topic, "store": lag.store, "lag": f"{lag.lag:,}",
        "oldest": _time(lag.oldest_ms) if lag.oldest_ms is not None else "",
        "worst_queue": str(lag.worst_queue) if lag.lag else "", "lost": f"{lag.lost:,}",
    }  # fmt: skip


def _rates(found: Profile) -> str:
    """Return messages over time as a line of bars."""
    count = (found.end_ms - found.begin_ms) // found.interval_ms + 1
    columns = min(COLUMNS, count)
    sums = [0] * columns
    for rate in found.rates:
        number = (rate.time_ms - found.begin_ms) // found.interval_ms
        sums[number * columns // count] += rate.messages
    most = max(sums)
    return "".join(SPARKS[-(-value * (len(SPARKS) - 1) // most)] for value in sums)


def _time(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
