"""``penstock top``: topics by rate, groups by lag, and how far the services are, as they change."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.rates import Looks, look
from cli.session import Session, print_json, session_of
from services.sizes import size_text

if TYPE_CHECKING:
    from rich.console import Console, Group

TOPIC_SORTS: Final = ("in_per_s", "out_per_s", "in_bytes_per_s", "topic")
GROUP_SORTS: Final = ("lag", "lag_change_per_s", "done_per_s", "oldest_ms", "group")
KEYS: Final = "t sort topics  g sort groups  / filter  p pause  q quit"
_FIRST_SECONDS: Final = 1.0  # between the first two looks


@dataclass(slots=True)
class TopView:
    """How a person wants to see it."""

    topic_sort: str = TOPIC_SORTS[0]
    group_sort: str = GROUP_SORTS[0]
    only: str = ""
    typed: str | None = None  # a filter that is being typed
    is_paused: bool = False

    def press(self, key: str) -> bool:
        """Take in a key; return whether to go on."""
        if self.typed is not None:
            self._type(key)
        elif key == "q":
            return False
        elif key == "t":
            self.topic_sort = _next(TOPIC_SORTS, self.topic_sort)
        elif key == "g":
            self.group_sort = _next(GROUP_SORTS, self.group_sort)
        elif key == "p":
            self.is_paused = not self.is_paused
        elif key == "/":
            self.typed = ""
        return True

    def _type(self, key: str) -> None:
        assert self.typed is not None
        if key in "\r\n":
            self.only, self.typed = self.typed, None
        elif key == "\x1b":
            self.typed = None
        elif key in "\x7f\b":
            self.typed = self.typed[:-1]
        elif key.isprintable():
            self.typed += key

    def chosen(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return what is shown of rates, in order."""
        topics = [each for each in found["topics"] if self.only in each["topic"]]
        groups = [
            each
            for each in found["groups"]
            if self.only in each["group"] or self.only in each["topic"]
        ]
        return found | {
            "topics": _sorted(topics, self.topic_sort, "topic"),
            "groups": _sorted(groups, self.group_sort, "group"),
        }


def top(
    context: typer.Context,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    only: Annotated[
        str,
        typer.Option(
            "--filter", "-f", metavar="TEXT", help="Topics and groups whose names have it."
        ),
    ] = "",
    topic_sort: Annotated[
        str, typer.Option("--sort-topics", help=f"By {', '.join(TOPIC_SORTS)}.")
    ] = TOPIC_SORTS[0],
    group_sort: Annotated[
        str, typer.Option("--sort-groups", help=f"By {', '.join(GROUP_SORTS)}.")
    ] = GROUP_SORTS[0],
    most: Annotated[
        int, typer.Option("--max", "-n", min=1, help="With --once: topics and groups to print.")
    ] = 20,
) -> None:
    """Watch topics by rate, groups by lag, and how far the services are.

    Keys: t and g sort by the next column, / filters by a part of the name, p pauses, q ends. --json prints a line for each
    look, with all topics and groups. Rates lie between two looks; where groups are, the reader looks up every few
    seconds where there are very many queues.
    """
    for name, value, known in (
        ("--sort-topics", topic_sort, TOPIC_SORTS),
        ("--sort-groups", group_sort, GROUP_SORTS),
    ):
        if value not in known:
            raise CommandFailed(f"{name}: give one of {', '.join(known)}", ExitCode.USAGE)
    session = session_of(context)
    shown = TopView(topic_sort, group_sort, only)
    if once or session.as_json or not sys.stdout.isatty():
        _print(session, shown, interval, once=once, most=most)
    else:
        _watch(session, shown, interval)


def _print(session: Session, shown: TopView, interval: float, *, once: bool, most: int) -> None:
    """Print looks one after the other."""
    with session.client() as client:
        looks = Looks(look(client))
        while True:
            time.sleep(min(interval, _FIRST_SECONDS) if once else interval)
            looks.add(look(client))
            found = shown.chosen(looks.rates())
            if session.as_json:
                print_json(found)
            else:
                session.console().print(_page(found, shown, most, most))
            sys.stdout.flush()
            if once:
                break
    if looks.now.problems:
        raise typer.Exit(ExitCode.UNREACHABLE)


def _watch(session: Session, shown: TopView, interval: float) -> None:
    """Show the latest look until somebody ends it."""
    from rich.live import Live

    console = session.console()
    with session.client() as client, _keys() as pressed:
        looks = Looks(look(client))
        found = looks.rates()
        next_look = time.monotonic() + min(interval, _FIRST_SECONDS)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_screen(console, found, shown), refresh=True)
                for key in pressed(max(next_look - time.monotonic(), 0.0)):
                    if not shown.press(key):
                        return
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + interval
                    if not shown.is_paused:
                        looks.add(look(client))
                        found = looks.rates()


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Give a function that waits so many seconds for keys and returns them; none without a terminal to type at."""
    if sys.stdin is None or not sys.stdin.isatty():

        def none(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield none
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 64).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _screen(console: Console, found: dict[str, Any], shown: TopView) -> Group:
    left = max(console.height - 12, 4)
    return _page(shown.chosen(found), shown, left // 2, left - left // 2, keys=True)


def _page(
    found: dict[str, Any], shown: TopView, topics_max: int, groups_max: int, *, keys: bool = False
) -> Group:
    from rich.console import Group
    from rich.text import Text

    services = found["services"]
    parts: list[Any] = [Text(_services_line(services), overflow="fold")]
    parts += [
        Text(f"{name}: {problem}", style="red") for name, problem in services["problems"].items()
    ]
    parts.append(
        _table(found["topics"][:topics_max], _TOPIC_COLUMNS, shown.topic_sort, len(found["topics"]))
    )
    parts.append(
        _table(found["groups"][:groups_max], _GROUP_COLUMNS, shown.group_sort, len(found["groups"]))
    )
    if keys:
        state = f"filter: {shown.typed}_" if shown.typed is not None else KEYS
        only = f"   only *{shown.only}*" if shown.only else ""
        parts.append(Text(f"{state}{only}{'   paused' if shown.is_paused else ''}", style="dim"))
    return Group(*parts)


def _services_line(services: dict[str, Any]) -> str:
    if services["appended_offset"] is None:
        return "positions are not known"
    behind = ", ".join(
        f"{name.removesuffix('_behind_bytes')} {size_text(value)} behind"
        for name, value in services.items()
        if name.endswith("_behind_bytes")
    )
    return f"appended {services['appended_offset']:,}; {behind}"


def _table(
    rows: Sequence[dict[str, Any]], columns: dict[str, tuple[str, Any]], sort: str, total: int
) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, (title, _) in columns.items():
        is_text = name in ("topic", "group")
        mark = " ▾" if name == sort else ""
        table.add_column(f"{title}{mark}", justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(str(show(row[name]))) for name, (_, show) in columns.items()))
    if total > len(rows):
        table.caption = f"{total - len(rows):,} more"
    return table


def _rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 10 or not value else f"{value:,.1f}"


def _age(stored_ms: int) -> str:
    if not stored_ms:
        return ""
    seconds = max(0, time.time_ns() // 1_000_000 - stored_ms) // 1_000
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        return f"{seconds // 60} min"
    return f"{seconds // 3_600} h" if seconds < 172_800 else f"{seconds // 86_400} d"


_TOPIC_COLUMNS: Final = {
    "topic": ("topic", str),
    "in_per_s": ("in/s", _rate),
    "in_bytes_per_s": ("in bytes/s", size_text),
    "out_per_s": ("out/s", _rate),
    "out_bytes_per_s": ("out bytes/s", size_text),
    "stored": ("stored", "{:,}".format),
}
_GROUP_COLUMNS: Final = {
    "group": ("group", str),
    "topic": ("topic", str),
    "lag": ("lag", "{:,}".format),
    "lag_change_per_s": ("change/s", _rate),
    "done_per_s": ("done/s", _rate),
    "out_per_s": ("out/s", _rate),
    "leased": ("in flight", "{:,}".format),
    "oldest_ms": ("oldest", _age),
}


def _sorted(rows: list[dict[str, Any]], sort: str, name: str) -> list[dict[str, Any]]:
    """Return rows with the largest first, names and times the other way round; what has no time comes last."""
    if sort == name:
        return sorted(rows, key=lambda row: str(row[name]))
    if sort == "oldest_ms":
        return sorted(rows, key=lambda row: (row[sort] or 1 << 62, row[name]))
    return sorted(rows, key=lambda row: (-(row[sort] or 0), row[name]))


def _next(names: Sequence[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]
