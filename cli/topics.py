"""``penstock topic create|list|describe|update|delete``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.completion import topic_names
from cli.failures import CommandFailed, ExitCode
from cli.session import counted, session_of

if TYPE_CHECKING:
    from penstock import Client, Topic

PERMISSIONS: Final = {0: "none", 2: "write", 4: "read", 6: "read, write"}

_ADVICE: Final = re.compile(r"; (let them|lower the) [a-z ]+")  # of a refusal

app = typer.Typer(help="Create, list, describe, change and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=topic_names)]
Attributes = Annotated[
    list[str] | None, typer.Option("--attribute", metavar="NAME=VALUE", help="May be repeated.")
]


@app.command()
def create(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of topics.")],
    queues: Annotated[int, typer.Option("--queues", "-q", help="How many queues each has.")] = 8,
    attribute: Attributes = None,
) -> None:
    """Create topics, all of them or none."""
    session = session_of(context)
    with session.client() as client:
        topics = client.create_topics(
            names, queues=queues, attributes=name_values(attribute, "--attribute")
        )
    for topic in topics:
        queue_count = counted(topic.write_queue_count, "queue")
        session.say(f"topic [bold]{topic.name}[/] with {queue_count}", _json(topic))


@app.command("list")
def list_topics(context: typer.Context) -> None:
    """List the topics."""
    session = session_of(context)
    with session.client() as client:
        topics = client.topics()
    session.show(
        [
            {
                "topic": topic.name,
                "read queues": topic.read_queue_count,
                "write queues": topic.write_queue_count,
                "permission": PERMISSIONS.get(topic.perm, str(topic.perm)),
                "attributes": " ".join(f"{k}={v}" for k, v in topic.attributes.items()),
            }
            for topic in topics
        ],
        json_rows=map(_json, topics),
        empty="no topics yet: penstock topic create NAME --queues 8",
    )


@app.command()
def describe(context: typer.Context, name: Name) -> None:
    """Show a topic and what each of its queues holds."""
    session = session_of(context)
    with session.client() as client:
        found = client.describe_topic(name)
    queues = [
        {"queue": queue_id, "min_offset": begin, "max_offset": end, "messages": end - begin}
        for queue_id, (begin, end) in sorted(found.queues.items())
    ]
    total = sum(queue["messages"] for queue in queues)
    title = f"{name}: {_settings_text(found.topic)}; {counted(total, 'message')}"
    session.show(
        queues, json_rows=[_json(found.topic) | {"queues": queues}], title=title, empty="no queues"
    )


@app.command()
def update(
    context: typer.Context,
    name: Name,
    queues: Annotated[
        int | None, typer.Option("--queues", "-q", help="New number of queues, to read and write.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(help="New number of queues that producers write to.")
    ] = None,
    read_queues: Annotated[
        int | None, typer.Option(help="New number of queues that consumers read.")
    ] = None,
    perm: Annotated[
        int | None, typer.Option(help="2 to write plus 4 to read; 6 is both.", min=0, max=7)
    ] = None,
    attribute: Attributes = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Remove read queues that are in use; prints what stays unread."
        ),
    ] = False,
) -> None:
    """Change a topic's queues, permission or attributes.

    What --force leaves unread stays on the disk, and is read when the read queues are back.
    """
    session = session_of(context)
    if queues is read_queues is write_queues is perm is None and not attribute:
        raise CommandFailed(
            "nothing to change: give --queues, --write-queues, --read-queues, --perm or --attribute",
            ExitCode.USAGE,
        )
    changes: dict[str, Any] = {
        "queues": queues,
        "read_queues": read_queues,
        "write_queues": write_queues,
        "perm": perm,
        "attributes": name_values(attribute, "--attribute"),
    }
    with session.client() as client:
        topic, unread = _update(client, name, changes, force=force)
    if unread:
        print(f"penstock: not read until the read queues are back: {unread}", file=sys.stderr)  # noqa: T201
    session.say(
        f"topic [bold]{topic.name}[/] with {_settings_text(topic)}",
        _json(topic) | ({"not_read": unread} if unread else {}),
    )


def _update(
    client: Client, name: str, changes: dict[str, Any], *, force: bool
) -> tuple[Topic, str]:
    """Change a topic; with ``force`` also where it is refused. Also returns what is not read any more."""
    from penstock.errors import FailedPrecondition

    try:
        return client.update_topic(name, **changes), ""
    except FailedPrecondition as refused:
        if refused.reason != "QUEUES_IN_USE":
            raise
        if not force:
            raise CommandFailed(
                f"{refused.message}. --force takes the queues away all the same: what is in them stays"
                " on the disk, and is not read until they are back",
                ExitCode.REFUSED,
            ) from None
        unread = _ADVICE.sub("", refused.message).removeprefix(f"topic {name!r}: ")
    return client.update_topic(name, **changes, force=True), unread


def _settings_text(topic: Topic) -> str:
    """Return a topic's queues, permission and attributes in words."""
    counts = counted(topic.write_queue_count, "queue")
    if topic.read_queue_count != topic.write_queue_count:
        counts = f"{counts} to write and {topic.read_queue_count} to read"
    permission = PERMISSIONS.get(topic.perm, str(topic.perm))
    attributes = "".join(f"; {name}={value}" for name, value in topic.attributes.items())
    return f"{counts}; {permission}{attributes}"


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a topic and its queues; its records stay in the commit log until that is cleaned."""
    session = session_of(context)
    with session.client() as client:
        if not yes:
            client.describe_topic(name)
        session.confirm(f"Delete topic {name} and its queues?", yes=yes)
        client.delete_topic(name)
    session.say(f"topic [bold]{name}[/] deleted", {"deleted": name})


def name_values(pairs: list[str] | None, option: str) -> dict[str, str]:
    """Return ``NAME=VALUE`` options as a mapping."""
    values = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandFailed(f"{option} {pair!r}: write it as NAME=VALUE", ExitCode.USAGE)
        values[name] = value
    return values


def _json(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "read_queues": topic.read_queue_count,
        "write_queues": topic.write_queue_count,
        "perm": topic.perm,
        "attributes": dict(topic.attributes),
    }
