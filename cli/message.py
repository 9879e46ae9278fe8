"""``penstock message ID``: one message, and its way: what each consumer group did with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.completion import topic_names
from cli.failures import CommandFailed, ExitCode, describe
from cli.records import record_json, time_text
from cli.session import Session, print_json, session_of
from services.bodies import hex_dump, indented, printable

if TYPE_CHECKING:
    from penstock import Client, Record

DUMPED_BYTES_MAX: Final = 4_096  # of a body that is no text


def message(
    context: typer.Context,
    identifier: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Message id, a client's unique id, or commit offset as a number."
        ),
    ] = "",
    topic: Annotated[
        str,
        typer.Option(
            help="Look for a unique id, or for --key, in this topic.", autocompletion=topic_names
        ),
    ] = "",
    key: Annotated[str, typer.Option("--key", "-k", help="Instead of ID: a business key.")] = "",
) -> None:
    """Show one message, and what each consumer group did with it.

    Without --topic a client's unique id is looked for in all topics. Of several messages with the same key or unique id
    the newest is shown; penstock query lists all. A body is shown as text, JSON or hexadecimal; --json has all of it.
    """
    if bool(identifier) == bool(key) or (key and not topic):
        raise CommandFailed("give an ID, or --topic and --key", ExitCode.USAGE)
    session = session_of(context)
    with session.client() as client:
        record = _by_key(client, topic, key) if key else _by_id(client, identifier, topic)
        way = message_way(client, record)
    if session.as_json:
        print_json(record_json(record) | way)
    else:
        _show(session, record, way)


def _by_key(client: Client, topic: str, key: str, *, unique: bool = False) -> Record:
    found = _newest(client, topic, key, unique=unique)
    if found is None:
        kind = "unique id" if unique else "key"
        raise CommandFailed(f"no message of {topic} has the {kind} {key}", ExitCode.NOT_FOUND)
    return found


def _newest(client: Client, topic: str, key: str, *, unique: bool) -> Record | None:
    return next(iter(client.query_by_key(topic, key, unique=unique, page_size=1)), None)


def _by_id(client: Client, identifier: str, topic: str) -> Record:
    """Return what an id names: a place in the log, or a client's message. Text alone does not tell them apart."""
    from penstock.errors import InvalidArgument, MessageNotFound
    from storage.format.message_id import IPV4_ID_SIZE

    if len(identifier) < 2 * IPV4_ID_SIZE and not topic:
        try:
            return client.message(int(identifier))
        except ValueError:
            raise CommandFailed(
                f"{identifier!r} is neither a message id nor a commit offset; a unique id that is no"
                " client's of RocketMQ needs --topic",
                ExitCode.USAGE,
            ) from None
    if topic:
        found = _newest(client, topic, identifier, unique=True)
        if found is not None:
            return found
    try:
        return client.message(identifier)
    except (MessageNotFound, InvalidArgument):
        return _by_unique_id(client, identifier, topic)


def _by_unique_id(client: Client, unique_id: str, topic: str) -> Record:
    from storage.format.names import DLQ_PREFIX, RETRY_PREFIX

    if topic:
        return _by_key(client, topic, unique_id, unique=True)
    copies = (DLQ_PREFIX, RETRY_PREFIX)
    topics = sorted(
        (each.name for each in client.topics()), key=lambda name: name.startswith(copies)
    )
    for name in topics:
        found = _newest(client, name, unique_id, unique=True)
        if found is not None:
            return found
    raise CommandFailed(f"no message has the id {unique_id}", ExitCode.NOT_FOUND)


def message_way(client: Client, record: Record) -> dict[str, Any]:
    """Return whether a message is flushed and found by key, where the user may know, and its tracks."""
    from penstock.errors import PenstockError

    way: dict[str, Any] = {}
    with suppress(PenstockError):  # the writer is away, or the user may not see the cluster
        end = record.commit_offset + record.size
        way["flushed"] = end <= client.writer_status().flushed_offset
        way["found_by_key"] = end <= client.reader_status().indexed_offset
    try:
        tracks = client.track(
            record.topic, record.queue_id, record.queue_offset, commit_offset=record.commit_offset
        )
    except PenstockError as error:
        return way | {"groups": [], "problem": describe(error)[0]}
    return way | {"groups": list(map(asdict, tracks))}


def _show(session: Session, record: Record, way: dict[str, Any]) -> None:
    value = record_json(record)
    value["stored"] = time_text(value.pop("store_timestamp_ms"))
    value["born"] = time_text(value.pop("born_timestamp_ms"))
    value["keys"] = " ".join(record.keys)
    for name in ("properties", "system_properties"):
        value[name] = " ".join(f"{k}={v}" for k, v in value[name].items())
    for name in ("body", "body_base64", "body_problem"):
        value.pop(name, None)
    for name in ("flushed", "found_by_key"):
        if name in way:
            value[name] = "yes" if way[name] else "not yet"
    console = session.console()
    for name, part in value.items():
        console.print(f"[cyan]{name.replace('_', ' '):<17}[/]", end=" ")
        console.print(printable(str(part)), markup=False, soft_wrap=True)
    body, problem = record.body_or_stored()
    kind, text = body_text(body)
    if problem:
        kind = f"as stored: it cannot be unpacked: {problem}; {kind}"
    console.print(f"[cyan]{'body':<17}[/]", end=" ")
    console.print(f"{len(body):,} bytes, {kind}", markup=False)
    console.print(text, markup=False, soft_wrap=True)
    if "problem" in way:
        console.print(f"its way is not known: {way['problem']}", markup=False, style="yellow")
        return
    session.show(
        [_row(each) for each in way["groups"]],
        title="what each consumer group did with it",
        empty="no consumer group has read its queue",
    )


def _row(track: dict[str, Any]) -> dict[str, Any]:
    letter = track["dead_letter_commit_offset"]
    return {
        "group": track["group"],
        "state": track["state"].replace("_", " "),
        "attempts": track["attempts"] or "",
        "until": time_text(track["until_ms"]) if track["until_ms"] else "",
        "client": track["client_id"],
        "dead letter": "" if letter is None else f"penstock message {letter}",
    }


def body_text(body: bytes) -> tuple[str, str]:
    """Return how a body is shown, and the text: JSON indented, text as it is, anything else as a dump of bytes.

    Characters that steer a terminal are escaped.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        more = "" if len(body) <= DUMPED_BYTES_MAX else f", the first {DUMPED_BYTES_MAX:,}"
        return f"hexadecimal{more}", hex_dump(body[:DUMPED_BYTES_MAX])
    lines = indented(text)
    kind = "text" if lines is None else "JSON"
    return kind, printable(text if lines is None else lines, keeps="\n\t")
