"""Options and columns of a write, checked when the query is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.tls import TLS
from pipeline.errors import InvalidColumn, InvalidOption
from pipeline.source.endpoints import TLS_OPTIONS, check_endpoint, endpoint_tls
from pipeline.source.options import check_name
from storage.arrow.message_rows import MessageColumns
from storage.format.names import topic_name_problem
from storage.format.stage import VERSION_MAX, id_problem

OPTIONS: Final = (
    "endpoint", "topic", "txnAppId", "txnVersion", "endpointTimeoutMs", *TLS_OPTIONS,
)  # fmt: skip
OF_SPARK: Final = ("checkpointlocation", "queryname")  # what writeStream's options hold besides
TIMEOUT_MS: Final = 120_000
WRITER: Final = "the store's writer"  # in messages

TEXT: Final = ("string", "binary")
HEADERS: Final = tuple(f"array<struct<key:string,value:{kind}>>" for kind in ("binary", "string"))
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "body": ("binary", "string"),
    "key": TEXT,
    "keys": ("string", "array<string>"),
    "tags": ("string",),
    "headers": HEADERS,
    "properties": ("map<string,string>",),
    "topic": ("string",),
    "queueId": ("int", "smallint", "tinyint"),
    "partition": ("int", "smallint", "tinyint"),
}
EITHER: Final = (("value", "body"), ("key", "keys"), ("queueId", "partition"))


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """A write as asked for; ``topic`` is that of every row, None if a column says it."""

    endpoint: str
    tls: TLS | None
    topic: str | None
    app_id: str | None
    version: int | None
    timeout_s: float
    columns: MessageColumns


def parse_write(
    given: Mapping[str, str], schema: Sequence[tuple[str, str]], *, streaming: bool
) -> WriteOptions:
    """Check options and the columns, given as ``(name, type)``. Raises InvalidOption, InvalidColumn."""
    values = _known(given)
    endpoint = check_endpoint(values.get("endpoint", ""), WRITER)
    app_id, version = _app_version(values, streaming=streaming)
    topic = values.get("topic")
    if topic is not None and (problem := topic_name_problem(topic)):
        raise InvalidOption("topic", problem)
    columns = _columns(schema)
    if topic is None and columns.topic is None:
        raise InvalidOption("topic", "missing; give it, or a column 'topic'")
    return WriteOptions(
        endpoint=endpoint,
        tls=endpoint_tls({name: values[name] for name in TLS_OPTIONS if values.get(name)}),
        topic=topic,
        app_id=app_id,
        version=version,
        timeout_s=_number(values, "endpointTimeoutMs", TIMEOUT_MS) / 1000,
        columns=columns,
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): name for name in OPTIONS}
    values = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in OF_SPARK:
            continue
        if lower == "path":
            raise InvalidOption("path", "a writer has none; give 'endpoint', and save() nothing")
        if lower == "store":
            raise InvalidOption(
                "store", "a store is written through its writer; give 'endpoint', its HOST:PORT"
            )
        check_name(name, known)
        values[known[lower]] = str(value).strip()
    return values


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not int(text):
        raise InvalidOption(name, f"{text!r} is not a number above 0")
    return int(text)


def _app_version(values: Mapping[str, str], *, streaming: bool) -> tuple[str | None, int | None]:
    app_id, version = values.get("txnAppId"), values.get("txnVersion")
    if app_id is not None and (problem := id_problem(app_id)):
        raise InvalidOption("txnAppId", problem)
    if streaming:
        if version is not None:
            raise InvalidOption("txnVersion", "a stream's batches have numbers; leave it out")
        return app_id, None
    if (app_id is None) != (version is None):
        missing = "txnAppId" if app_id is None else "txnVersion"
        raise InvalidOption(missing, "missing; 'txnAppId' and 'txnVersion' go together")
    if version is None:
        return None, None
    if not version.isdecimal() or int(version) > VERSION_MAX:
        raise InvalidOption("txnVersion", f"{version!r} is not a number from 0 to {VERSION_MAX}")
    return app_id, int(version)


def _columns(schema: Sequence[tuple[str, str]]) -> MessageColumns:
    types: dict[str, tuple[str, str]] = {}
    known = {name.lower(): name for name in COLUMNS}
    for name, kind in schema:
        column = known.get(name.lower())
        if column is None:
            raise InvalidColumn(
                name,
                "is not a column of a message; drop it, or put it into 'headers'. Columns:"
                f" {', '.join(COLUMNS)}",
            )
        if column in types:
            raise InvalidColumn(name, "is there twice; drop one")
        if kind.lower() not in COLUMNS[column]:
            raise InvalidColumn(name, f"is {kind}, not {' or '.join(COLUMNS[column])}; cast it")
        types[column] = (name, kind)
    for one, other in EITHER:
        if one in types and other in types:
            raise InvalidColumn(other, f"says the same as {one!r}; drop one of them")
    body = types.get("value") or types.get("body")
    if body is None:
        raise InvalidColumn("value", "is missing; name the messages' bodies 'value' or 'body'")

    def name_of(*columns: str) -> str | None:
        return next((types[column][0] for column in columns if column in types), None)

    return MessageColumns(
        body=body[0],
        keys=name_of("key", "keys"),
        one_key="key" in types,
        tags=name_of("tags"),
        headers=name_of("headers"),
        properties=name_of("properties"),
        topic=name_of("topic"),
        queue_id=name_of("queueId", "partition"),
    )
