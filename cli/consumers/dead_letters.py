"""``penstock dlq list|show|resend``: messages that a consumer group has given up."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from cli.failures import CommandFailed, ExitCode
from cli.records import body_text, record_json, shown_body, time_text
from cli.session import counted, print_json, session_of
from storage.format.names import DLQ_PREFIX, RETRY_PREFIX
from storage.format.properties import RETRY_TOPIC, is_reserved
from storage.tables.groups import RETRY_MAX_TIMES, RETRY_MAX_TIMES_MAX

if TYPE_CHECKING:
    from penstock import Client, Message, Record

RESENDER: Final = "penstock-dlq-resend"
"""The group whose progress in a dead letter queue says what has been sent again."""
_LEASE_MS: Final = 60_000
_BATCH_MESSAGES: Final = 256

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
        rows = [each._asdict() for each in dead_letter_counts(client) if group in ("", each.group)]
    session.show(rows, empty="no group has dead letters")


class DeadLetterCount(NamedTuple):
    """The dead letters of a group that are kept, and those of them that were not sent again."""

    group: str
    messages: int
    to_resend: int


def dead_letter_counts(client: Client) -> list[DeadLetterCount]:
    """Return the groups that have dead letters, by name."""
    found = []
    for topic in client.topics():
        if not topic.name.startswith(DLQ_PREFIX):
            continue
        ranges = client.describe_topic(topic.name).queues
        resent = {each.queue_id: each.queue_offset for each in client.offsets(RESENDER, topic.name)}
        left = sum(
            end - max(begin, resent.get(queue_id, begin))
            for queue_id, (begin, end) in ranges.items()
        )
        kept = sum(end - begin for begin, end in ranges.values())
        found.append(DeadLetterCount(topic.name.removeprefix(DLQ_PREFIX), kept, left))
    return found


@app.command()
def show(
    context: typer.Context,
    group: Group,
    most: Annotated[int, typer.Option("--max", "-n", min=1, help="Show so many.")] = 20,
) -> None:
    """Show a group's dead letters, the oldest first, with the topic each comes from and its attempts.

    The attempts may be one too many or too few if --retries of the group was changed since.
    """
    session = session_of(context)
    with (
        session.client() as client,
        client.consume(_topic_of(client, group), follow=False) as records,
    ):
        attempts_max = _attempts_max(client, group)
        for record in itertools.islice(records, most):
            origin = _origin(record, group)
            # A broker's count: of what had its last attempt it has one more, of what a handler gave up it has not.
            attempts = record.reconsume_times - (record.reconsume_times > attempts_max)
            if session.as_json:
                print_json(record_json(record) | {"origin_topic": origin, "attempts": attempts})
            else:
                session.console().print(
                    f"{time_text(record.store_timestamp_ms)} {origin} after {counted(attempts, 'attempt')}:"
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

    Where it is interrupted, or fails, it goes on after the last that was stored when it is called again.
    """
    session = session_of(context)
    sent = 0
    with session.client() as client:
        dead = _topic_of(client, group)
        _make_resender(client)
        if again:
            client.reset_group(RESENDER, dead, "earliest")
        while not most or sent < most:
            room = min(_BATCH_MESSAGES, most - sent) if most else _BATCH_MESSAGES
            resent = _resend_some(client, dead, group, to=topic, most=room)
            if not resent:
                break
            sent += resent
    session.say(f"{counted(sent, 'message')} sent again", {"resent": sent})


def _make_resender(client: Client) -> None:
    """Have the group there that sends again. It gives nothing up: that would count as sent."""
    from penstock.errors import GroupExists

    try:
        client.create_group(RESENDER, retry_max_times=RETRY_MAX_TIMES_MAX)
    except GroupExists:
        client.update_group(RESENDER, retry_max_times=RETRY_MAX_TIMES_MAX)


def _resend_some(client: Client, dead: str, group: str, *, to: str, most: int) -> int:
    """Lease dead letters, store them again, then acknowledge them; return how many.

    What is not stored is given back, for the next call.
    """
    received = client.receive(dead, group=RESENDER, max_messages=most, lease_ms=_LEASE_MS)
    while received.damaged and not received.records:  # those were passed over
        received = client.receive(dead, group=RESENDER, max_messages=most, lease_ms=_LEASE_MS)
    if not received.records:
        return 0
    stored = 0
    try:
        copies = []
        problem: CommandFailed | None = None
        for record in received.records:
            try:
                copies.append(_copy(record, to or _origin(record, group)))
            except CommandFailed as error:
                problem = error
                break
        if copies:
            client.produce_many(copies)
        stored = len(copies)
        if problem is not None:
            raise problem
    finally:
        end = stored * received.handle_width
        if stored:
            client.acknowledge(received, received.receipt_handles[:end])
        if stored < len(received.records):
            client.change_leases(received, 0, received.receipt_handles[end:])
    return stored


def _copy(record: Record, topic: str) -> Message:
    from penstock import Message

    own = {name: value for name, value in record.properties.items() if not is_reserved(name)}
    return Message(
        topic=topic,
        body=record.stored_body,
        keys=record.keys,
        tag=record.tag,
        properties=own,
        unique_key=record.unique_key,
        flag=record.flag,
        sys_flag=record.compression_flags,
    )


def _origin(record: Record, group: str) -> str:
    """Return the topic that a dead letter was sent to; a retry's is the topic it is a retry of."""
    origin = record.properties.get(RETRY_TOPIC, "")
    if not origin:
        raise CommandFailed(
            f"the dead letter at offset {record.queue_offset} does not say where it comes from:"
            " give --topic",
            ExitCode.USAGE,
        )
    for between in "_+":  # a broker has two ways to name it
        origin = origin.removeprefix(f"{RETRY_PREFIX}{group}{between}")
    return origin


def _attempts_max(client: Client, group: str) -> int:
    """Return how often the group hands a message out; the default where the group is gone."""
    retries = {each.name: each.retry_max_times for each in client.group_settings()}
    return retries.get(group, RETRY_MAX_TIMES) + 1


def _topic_of(client: Client, group: str) -> str:
    """Return the topic of a group's dead letters. Raises CommandFailed if it has none."""
    from penstock.errors import NotFound

    topic = f"{DLQ_PREFIX}{group}"
    try:
        client.describe_topic(topic)
    except NotFound:
        raise CommandFailed(f"group {group} has no dead letters", ExitCode.NOT_FOUND) from None
    return topic
