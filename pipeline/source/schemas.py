"""Columns of every table, as Spark declares them; the order is that of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from storage.kernels.columns import CHECK_BODY_CRC, CHECK_PROPERTY_CRC

MESSAGE_COLUMNS: Final = {
    "topic": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "physicalOffset": "bigint",
    "size": "int",
    "msgId": "string",
    "tags": "string",
    "keys": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "storeHost": "string",
    "sysFlag": "int",
    "flag": "int",
    "bodyCrc": "int",
    "reconsumeTimes": "int",
    "preparedTransactionOffset": "bigint",
}
CORRUPT: Final = "_corrupt"
STORE: Final = "store"
HEADERS: Final = "headers"
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"

BODY_COLUMNS: Final = frozenset(("body", "value"))

KAFKA_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}

TABLES: Final = {
    "messages": MESSAGE_COLUMNS,
    "consumequeue": {
        "topic": "string",
        "queueId": "int",
        "queueOffset": "bigint",
        "physicalOffset": "bigint",
        "size": "int",
        "tagsCode": "bigint",
    },
    "index": {
        "file": "string",
        "entry": "int",
        "keyHash": "int",
        "physicalOffset": "bigint",
        "timeDelta": "int",
        "previousEntry": "int",
        "beginTimestamp": "timestamp",
    },
    "checkpoint": {"field": "string", "value": "bigint", "timestamp": "timestamp"},
    "queues": {
        "topic": "string",
        "queueId": "int",
        "minOffset": "bigint",
        "maxOffset": "bigint",
        "messages": "bigint",
        "minPhysicalOffset": "bigint",
        "maxPhysicalOffset": "bigint",
    },
    "files": {
        "kind": "string",
        "topic": "string",
        "queueId": "int",
        "startOffset": "bigint",
        "size": "bigint",
        "path": "string",
    },
}


def columns_of(
    table: str, *, kafka: bool = False, headers: bool = False, store: bool = False
) -> dict[str, str]:
    """Return every column a read of ``table`` has, in order, with its type.

    Messages end with the reason why a damaged record has only nulls; Kafka's columns do not, but a
    schema may ask for it.
    """
    columns = dict(KAFKA_COLUMNS if kafka else TABLES[table])
    if headers:
        columns[HEADERS] = HEADERS_TYPE
    if table == "messages" and not kafka:
        columns[CORRUPT] = "string"
    if store:
        columns[STORE] = "string"
    return columns


def ddl(columns: dict[str, str]) -> str:
    """Return the columns as a schema in SQL."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


@dataclass(frozen=True)
class Columns:
    """The wanted columns: their names and the Arrow schema that a batch of them must have."""

    names: tuple[str, ...]
    schema: Any

    @property
    def bodies(self) -> bool:
        """Whether a body is wanted."""
        return bool(BODY_COLUMNS.intersection(self.names))

    def checks(self, verify: bool | None) -> int:
        """Return the checksums to verify: as asked for, else all where bodies or reasons are wanted."""
        wanted = self.bodies or CORRUPT in self.names if verify is None else verify
        return CHECK_BODY_CRC | CHECK_PROPERTY_CRC if wanted else 0
