"""``penstock pub TOPIC``: one message, or the lines of a file through the streaming producer."""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import topic_names
from cli.failures import CommandFailed, ExitCode
from cli.line_ranges import LineRanges
from cli.pub_lines import ALL_LINES, Outgoing, send_lines
from cli.session import Session, read_lines, session_of
from cli.times import local_time_text, parse_delivery_ms, parsed
from cli.topics import name_values
from services.times import parse_duration_s

if TYPE_CHECKING:
    from penstock import Client

Numbered = tuple[int, Outgoing]


def pub(
    context: typer.Context,
    topic: Annotated[
        str, typer.Argument(help="Topic to store into; it must exist.", autocompletion=topic_names)
    ],
    body: Annotated[str | None, typer.Argument(help="Body of one message.")] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Business key; may be repeated.")
    ] = None,
    tag: Annotated[str, typer.Option("--tag", "-t", help="Tag.")] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="May be repeated."),
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", "-q", help="Queue; none: one after the other.")
    ] = None,
    lines: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="One message a line: the body.")
    ] = None,
    json_lines: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="One JSON object a line: body (text, or any JSON), keys, tag, properties, queue.",
        ),
    ] = None,
    only: Annotated[
        str,
        typer.Option(
            metavar="LINES",
            help="Of --lines or --json-lines only these, such as 17,40-99,5000-: to go on after a"
            " failure, which names them.",
        ),
    ] = "",
    file: Annotated[Path | None, typer.Option(help="File that is the body of one message.")] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="10s|15m|2h|3d",
            parser=parsed(parse_duration_s),
            help="Deliver one message so much later.",
        ),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=parsed(parse_delivery_ms),
            help="Deliver one message at 2013-11-01T10:00:00Z (without a zone: local time), or Unix ms.",
        ),
    ] = None,
) -> None:
    """Store one message, or one a line; --key, --tag and so on apply to all that name none."""
    session = session_of(context)
    given = [source for source in (body, lines, json_lines, file) if source is not None]
    if len(given) != 1:
        raise CommandFailed("give one of BODY, --file, --lines and --json-lines", ExitCode.USAGE)
    source = lines if json_lines is None else json_lines
    if only and source is None:
        raise CommandFailed("--only LINES needs --lines or --json-lines", ExitCode.USAGE)
    if delay is not None and at is not None:
        raise CommandFailed("give one of --delay and --at", ExitCode.USAGE)
    if source is not None and (delay is not None or at is not None):
        raise CommandFailed("--delay and --at are for one message", ExitCode.USAGE)
    wanted = _ranges(only) if only else ALL_LINES
    common = Outgoing(b"", tuple(key or ()), tag, name_values(properties, "--property"), queue)
    with session.client() as client:
        if source is not None:
            numbered: Iterable[tuple[int, bytes]] = enumerate(read_lines(source), start=1)
            if only:
                numbered = (each for each in numbered if each[0] in wanted)
            messages = (
                _of_lines(numbered, common)
                if json_lines is None
                else _of_json_lines(source, numbered, common)
            )
            send_lines(session, client, topic, messages, wanted)
        else:
            content = file.read_bytes() if file is not None else os.fsencode(body or "")
            _one(session, client, topic, content, common, at, delay)


def _ranges(text: str) -> LineRanges:
    try:
        return LineRanges.parse(text)
    except ValueError as error:
        raise CommandFailed(f"--only: {error}", ExitCode.USAGE) from None


def _one(
    session: Session,
    client: Client,
    topic: str,
    body: bytes,
    common: Outgoing,
    deliver_at_ms: int | None,
    delay_s: float | None,
) -> None:
    stored = client.produce(
        topic,
        body,
        keys=common.keys,
        tag=common.tag,
        properties=common.properties,
        queue_id=common.queue_id,
        deliver_at=deliver_at_ms,
        delay=delay_s,
    )
    due_ms = deliver_at_ms or stored.store_timestamp_ms + round((delay_s or 0) * 1_000)
    waits = stored.queue_offset < 0
    place = f"at offset [cyan]{stored.queue_offset}[/]"
    if waits:
        place = f"when it is due, at {local_time_text(due_ms)}"
    elif deliver_at_ms is not None:
        print("penstock: --at has passed: delivered at once", file=sys.stderr)  # noqa: T201
    recall = f"; to take it back: penstock recall with this handle:\n{stored.recall_handle}"
    session.say(
        f"stored in queue [cyan]{stored.queue_id}[/] {place}, id {stored.message_id}"
        + (recall if stored.recall_handle else ""),
        {
            "topic": stored.topic,
            "queue": stored.queue_id,
            "queue_offset": stored.queue_offset,
            "commit_offset": stored.commit_offset,
            "message_id": stored.message_id,
            "unique_key": stored.unique_key,
            "store_timestamp_ms": stored.store_timestamp_ms,
            **({"due_ms": due_ms} if waits else {}),
            **({"recall_handle": stored.recall_handle} if stored.recall_handle else {}),
        },
    )


def _of_lines(lines: Iterable[tuple[int, bytes]], common: Outgoing) -> Iterator[Numbered]:
    for number, line in lines:
        yield (
            number,
            Outgoing(line, common.keys, common.tag, common.properties, common.queue_id),
        )


def _of_json_lines(
    path: str, lines: Iterable[tuple[int, bytes]], common: Outgoing
) -> Iterator[Numbered]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            yield number, _message(json.loads(line), common)
        except json.JSONDecodeError as error:
            raise CommandFailed(
                f"{path}, line {number}, column {error.colno}: {error.msg}", ExitCode.USAGE
            ) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise CommandFailed(f"{path}, line {number}: {error}", ExitCode.USAGE) from error


def _message(value: Any, common: Outgoing) -> Outgoing:
    """Return one object as a message; ValueError says what is wrong with it."""
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    if "body" not in value and "body_base64" not in value:
        raise ValueError('no "body"')
    keys = value.get("keys", common.keys)
    properties = value.get("properties", common.properties)
    queue = value.get("queue", common.queue_id)
    tag = value.get("tag", common.tag)
    if isinstance(keys, str):
        keys = [keys]
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise ValueError('"keys" is not a list of texts')
    if not isinstance(properties, Mapping) or not all(
        isinstance(part, str) for pair in properties.items() for part in pair
    ):
        raise ValueError('"properties" is not an object of texts')
    if queue is not None and (not isinstance(queue, int) or isinstance(queue, bool)):
        raise ValueError('"queue" is not a number')
    if not isinstance(tag, str):
        raise ValueError('"tag" is not a text')
    return Outgoing(_body(value), tuple(keys), tag, properties, queue)


def _body(value: dict[str, Any]) -> bytes:
    if "body_base64" in value:
        try:
            return base64.b64decode(value["body_base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f'"body_base64": {error}') from error
    body = value["body"]
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
