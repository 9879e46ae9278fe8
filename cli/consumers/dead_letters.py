"""``penstock dlq list|show|resend``: messages that a consumer group has given up."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import CommandFailed, ExitCode
from cli.records import body_text, record_json, shown_body, time_text
from cli.session import counted, print_json, session_of
from services.bodies import printable
from storage.tables.groups import RETRY_MAX_TIMES

if TYPE_CHECKING:
    from penstock import Client

app = typer.Typer(help="List dead letters, show them, send them again.", no_args_is_help=True)
Group = Annotated[str, typer.Argument(help="The consumer group that gave them up.")]


@app.command("list")
def list_groups(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="Only this group; none: all.")] = "",
) -> None:
    """List the groups that have dead letters, and how many were not sent again yet."""
    session = session_of(context)
    with session.client() as client:
        if group:
            _topic_of(client, group)
        counts = client.dead_letter_counts()
    rows = [dataclasses.asdict(each) for each in counts if group in ("", each.group)]
    session.show(rows, empty="no group has dead letters")


@app.command()
def show(
    context: typer.Context,
    group: Group,
    most: Annotated[int, typer.Option("--max", "-n", min=1, help="Show so many.")] = 20,
) -> None:
    """Show a group's dead letters, the oldest first, with the topic each comes from and its attempts.

    The attempts may be one too many or too few if --retries of the group was changed since.
    """
    from penstock.calls.dead_letters import origin_topic

    session = session_of(context)
    with (
        session.client() as client,
        client.consume(_topic_of(client, group), follow=False) as records,
    ):
        attempts_max = _attempts_max(client, group)
        for record in itertools.islice(records, most):
            origin = origin_topic(record)
            # A broker's count: of what had its last attempt it has one more, of what a handler gave up it has not.
            attempts = record.reconsume_times - (record.reconsume_times > attempts_max)
            if session.as_json:
                print_json(record_json(record) | {"origin_topic": origin, "attempts": attempts})
            else:
                session.console().print(
                    f"{time_text(record.store_timestamp_ms)} {printable(origin)} after {counted(attempts, 'attempt')}:"
                    f" {shown_body(record, body_text)}",
                    markup=False,
                    soft_wrap=True,
                )


@app.command()
def resend(
    context: typer.Context,
    group: Group,
    topic: Annotated[
        str, typer.Option(help="Send them to this topic instead of where they come from.")
    ] = "",
    most: Annotated[
        int, typer.Option("--max", "-n", min=0, help="Stop after so many; 0: all.")
    ] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were sent again before.")
    ] = False,
) -> None:
    """Send a group's dead letters again, with their keys, tag and properties, each once.

    They are new messages of the topic: every group that reads it gets them, those that had handled them too.
    With --topic they go to another topic, such as one that this group alone reads.

    After an interruption or a failure the next call continues after the last message that was stored.
    """
    session = session_of(context)
    with session.client() as client:
        _topic_of(client, group)
        sent = client.resend_dead_letters(group, topic=topic, most=most, again=again)
    session.say(f"{counted(sent, 'message')} sent again", {"resent": sent})


def _attempts_max(client: Client, group: str) -> int:
    """Return how often the group hands a message out; the default where the group is gone."""
    retries = {each.name: each.retry_max_times for each in client.group_settings()}
    return retries.get(group, RETRY_MAX_TIMES) + 1


def _topic_of(client: Client, group: str) -> str:
    """Return the topic of a group's dead letters. Raises CommandFailed if it has none."""
    from penstock.calls.dead_letters import dead_letter_topic
    from penstock.errors import NotFound

    topic = dead_letter_topic(group)
    try:
        client.describe_topic(topic)
    except NotFound:
        raise CommandFailed(f"group {group} has no dead letters", ExitCode.NOT_FOUND) from None
    return topic
