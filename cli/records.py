"""Records as rows of a table and as JSON objects that ``penstock pub --json-lines`` takes back."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from services.bodies import printable
from storage.format.properties import KEYS, TAGS, UNIQ_KEY, WAIT, is_reserved

if TYPE_CHECKING:
    from penstock import Record
    from storage.message import Damage

OWN_FIELDS: Final = frozenset({KEYS, TAGS, UNIQ_KEY, WAIT})  # shown under names of their own
BODY_SHOWN_MAX: Final = 100  # characters of a body in a table


def record_json(record: Record) -> dict[str, Any]:
    """Return everything about a record; ``body_base64`` instead of ``body`` if it is not UTF-8.

    A body that cannot be unpacked is shown as it is stored, with the reason as ``body_problem``.
    """
    body, problem = record.body_or_stored()
    properties = {k: v for k, v in record.properties.items() if k not in OWN_FIELDS}
    value: dict[str, Any] = {
        "topic": record.topic,
        "queue": record.queue_id,
        "queue_offset": record.queue_offset,
        "commit_offset": record.commit_offset,
        "message_id": record.message_id,
        "unique_key": record.unique_key,
        "size": record.size,
        "store_timestamp_ms": record.store_timestamp_ms,
        "born_timestamp_ms": record.born_timestamp_ms,
        "store_host": record.store_host,
        "born_host": record.born_host,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "keys": list(record.keys),
        "tag": record.tag,
        "properties": {k: v for k, v in properties.items() if not is_reserved(k)},
        "system_properties": {k: v for k, v in properties.items() if is_reserved(k)},
    }
    try:
        value["body"] = body.decode()
    except UnicodeDecodeError:
        value["body_base64"] = base64.b64encode(body).decode()
    if problem:
        value["body_problem"] = problem
    return value


def shown_body(record: Record, show: Callable[[bytes], str]) -> str:
    """Return a record's body as ``show`` gives it, and what is wrong with it."""
    body, problem = record.body_or_stored()
    return f"{show(body)} (as stored: it cannot be unpacked: {problem})" if problem else show(body)


def damage_json(damage: Damage, *, topic: str, queue_id: int | None = None) -> dict[str, Any]:
    """Return a damaged record as a JSON line has it."""
    value: dict[str, Any] = {"damaged": damage.reason, "topic": topic}
    if queue_id is not None:
        value["queue"] = queue_id
    return value | {
        "queue_offset": damage.queue_offset,
        "commit_offset": damage.commit_offset,
        "size": damage.size,
    }


def record_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return records as rows for people."""
    return [
        {
            "queue": record.queue_id,
            "offset": record.queue_offset,
            "stored": time_text(record.store_timestamp_ms),
            "tag": record.tag,
            "keys": " ".join(record.keys),
            "body": shown_body(record, body_text),
            "message_id": record.message_id,
        }
        for record in records
    ]


def body_text(body: bytes) -> str:
    """Return the beginning of a body, printable and on one line."""
    text = printable(body[: BODY_SHOWN_MAX * 4].decode(errors="backslashreplace"))
    if len(text) > BODY_SHOWN_MAX or len(body) > BODY_SHOWN_MAX * 4:
        return f"{text[:BODY_SHOWN_MAX]}… {len(body):,} bytes"
    return text


def time_text(timestamp_ms: int) -> str:
    """Return Unix milliseconds as UTC."""
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"
