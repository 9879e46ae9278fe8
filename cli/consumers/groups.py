"""``penstock group create|list|describe|update|reset|delete``."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import counted, session_of
from cli.times import parsed
from services.times import UNIT_MS, parse_place

if TYPE_CHECKING:
    from penstock import ExponentialBackoff, Group


app = typer.Typer(
    help="Create, list, describe, change, reset and delete consumer groups.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="Name of the group.")]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries",
        min=0,
        help="How often a message is handed out again; then it is a dead letter.",
    ),
]
Orderly = Annotated[
    bool | None,
    typer.Option(
        "--orderly/--concurrent", help="Messages of one message group one after the other."
    ),
]
Backoff = Annotated[
    str | None,
    typer.Option(
        help="Delays before a message comes again: '1s 5s 10s 1m', or '1s..10m x2' to grow."
    ),
]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    retries: Retries = None,
    orderly: Orderly = None,
    backoff: Backoff = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="Begin with new messages, not with the oldest kept.")
    ] = False,
) -> None:
    """Create a consumer group. One that is not there is made when a consumer first asks for it."""
    session = session_of(context)
    with session.client() as client:
        group = client.create_group(
            name,
            retry_max_times=retries,
            orderly=orderly,
            backoff=None if backoff is None else parse_backoff(backoff),
            begin="latest" if latest else None,
        )
    session.say(f"group [bold]{name}[/]: {_settings_text(group)}", dataclasses.asdict(group))


@app.command("list")
def list_groups(context: typer.Context) -> None:
    """List the groups and their settings. A group that only commits offsets has none."""
    session = session_of(context)
    with session.client() as client:
        groups = client.group_settings()
        names = {group.name for group in groups}
        others = [name for name in client.groups() if name not in names]
    session.show(
        [{"group": group.name, "settings": _settings_text(group)} for group in groups]
        + [{"group": name, "settings": "commits offsets only"} for name in others],
        json_rows=[
            *map(dataclasses.asdict, groups),
            *({"name": name, "offsets_only": True} for name in others),
        ],
        empty="no groups yet: penstock group create NAME",
    )


@app.command()
def describe(
    context: typer.Context,
    name: Name,
    topic: Annotated[str, typer.Option(help="Only this topic.")] = "",
) -> None:
    """Show a group's settings, and queue by queue what is done, leased, waiting and still to come."""
    session = session_of(context)
    with session.client() as client:
        found = client.describe_group(name, topic)
    queues = [dataclasses.asdict(each) for each in found.queues]
    lag = counted(sum(each.lag for each in found.queues), "message")
    session.show(
        [{"queue" if k == "queue_id" else k: v for k, v in each.items()} for each in queues],
        json_rows=[dataclasses.asdict(found.group) | {"queues": queues}],
        title=f"{name}: {_settings_text(found.group)}; {lag} to go",
        empty=f"{name}: {_settings_text(found.group)}; it has consumed nothing",
    )


@app.command()
def update(
    context: typer.Context,
    name: Name,
    retries: Retries = None,
    orderly: Orderly = None,
    backoff: Backoff = None,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Hand out nothing, or go on.")
    ] = None,
) -> None:
    """Change a group's settings."""
    session = session_of(context)
    if retries is None and orderly is None and backoff is None and paused is None:
        raise CommandFailed(
            "nothing to change: give --retries, --orderly, --backoff, --pause or --resume",
            ExitCode.USAGE,
        )
    with session.client() as client:
        group = client.update_group(
            name,
            retry_max_times=retries,
            orderly=orderly,
            backoff=None if backoff is None else parse_backoff(backoff),
            paused=paused,
        )
    session.say(f"group [bold]{name}[/]: {_settings_text(group)}", dataclasses.asdict(group))


@app.command()
def reset(
    context: typer.Context,
    name: Name,
    topic: Annotated[str, typer.Argument(help="Topic in which the group goes on elsewhere.")],
    to: Annotated[
        Any,
        typer.Option(
            metavar="PLACE",
            parser=parsed(parse_place),
            help="earliest, latest, a time (15m ago, ISO 8601, Unix ms), or an offset of the one --queue.",
        ),
    ],
    queue: Annotated[
        list[int] | None, typer.Option("--queue", "-q", help="Only this queue; may be repeated.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what it would do.")] = False,
) -> None:
    """Set where a group goes on in a topic; shows what that means and asks first.

    Stop consumers that commit offsets before: their next commit moves the group to where they are.

    What the group has under lease is dropped: it is refused when consumers acknowledge it.
    """
    session = session_of(context)
    queues = tuple(queue or ())
    if isinstance(to, int) and len(queues) != 1:
        raise CommandFailed("an offset is that of one queue: give --queue", ExitCode.USAGE)
    with session.client() as client:
        found = client.reset_group(name, topic, to, queues=queues, preview=preview or not yes)
        if not yes and not preview:
            if not session.as_json:
                session.show([dataclasses.asdict(each) for each in found], empty="no queues")
            session.confirm(f"Reset group {name} like this?", yes=yes)
            client.reset_group(name, topic, to, queues=queues)
            session.say(f"done: group [bold]{name}[/] goes on there", {})
            return
    session.show([dataclasses.asdict(each) for each in found], empty="no queues")


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a group: its settings, leases and offsets. Its dead letters stay."""
    session = session_of(context)
    with session.client() as client:
        if not yes:
            client.describe_group(name)
        session.confirm(f"Delete group {name} and its offsets?", yes=yes)
        client.delete_group(name)
    session.say(f"group [bold]{name}[/] deleted", {"deleted": name})


def parse_backoff(text: str) -> tuple[int, ...] | ExponentialBackoff:
    """Return delays in milliseconds for ``1s 5s 1m``, a growing one for ``1s..10m x2``."""
    from penstock import ExponentialBackoff

    growing = re.fullmatch(r"\s*(\S+?)\.\.(\S+)\s+x(\d+)\s*", text)
    if growing:
        return ExponentialBackoff(
            initial_ms=_duration_ms(growing[1]),
            max_ms=_duration_ms(growing[2]),
            multiplier=int(growing[3]),
        )
    delays = tuple(map(_duration_ms, text.split()))
    if not delays:
        raise CommandFailed("--backoff: give delays, like '1s 5s 10s'", ExitCode.USAGE)
    return delays


def _duration_ms(text: str) -> int:
    match = re.fullmatch(r"(\d+)(ms|[smhd])", text)
    if match is None:
        raise CommandFailed(
            f"{text!r} is not a duration: write 500ms, 10s, 5m, 2h or 1d", ExitCode.USAGE
        )
    return int(match[1]) * UNIT_MS.get(match[2], 1)


def _settings_text(group: Group) -> str:
    from storage.format.backoff import DEFAULT_STEPS_MS

    order = "orderly" if group.orderly else "concurrent"
    paused = ", paused" if group.paused else ""
    retries = "1 retry" if group.retry_max_times == 1 else f"{group.retry_max_times} retries"
    begin = ", begins with new messages" if group.begin == "latest" else ""
    backoff = "" if group.backoff == DEFAULT_STEPS_MS else f" after {backoff_text(group.backoff)}"
    return f"{order}{paused}{begin}, {retries}{backoff}"


def backoff_text(backoff: tuple[int, ...] | ExponentialBackoff) -> str:
    """Return delays as ``--backoff`` takes them."""
    if isinstance(backoff, tuple):
        return " ".join(map(_duration_text, backoff))
    ends = f"{_duration_text(backoff.initial_ms)}..{_duration_text(backoff.max_ms)}"
    return f"{ends} x{backoff.multiplier}"


def _duration_text(duration_ms: int) -> str:
    for unit, unit_ms in reversed(UNIT_MS.items()):
        if duration_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms}{unit}"
    return f"{duration_ms}ms"
