"""A topic as one Arrow table, of a store's directory or URL or through a reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.addresses import address_problem
from penstock.calls import topics
from penstock.calls.offsets import Position, checked_start
from penstock.client.client import Client
from penstock.errors import DataLoss, InvalidArgument, TopicNotFound
from penstock.tables import batches_of_store, schema_of, table_of
from penstock.tls import TLS
from storage import errors
from storage.clock import unix_ms

if TYPE_CHECKING:
    import pyarrow as pa


def read_table(
    source: str | os.PathLike[str],
    topic: str,
    *,
    start: Position = "earliest",
    end: Position = "latest",
    queues: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    tag: str = "",
    tls: TLS | None = None,
    access_key: str = "",
    secret_key: str = "",
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Return the messages of a topic as a `pyarrow.Table`, queue by queue, each in order.

    ``source`` is a store's directory or URL, which needs no service, or a reader's ``HOST:PORT``. A URL such as
    ``s3://bucket/store`` is read by ranges through fsspec, which gets ``storage_options``. ``start`` and ``end`` are a queue offset, a time (datetime), "earliest" or "latest"; what is stored at or after ``end``
    is left out. ``columns`` names those that are built; docs/client.md has them all. ``tag`` is one tag, or
    several joined by ``||``.

    Raises DataLoss for a damaged record, InvalidArgument, TopicNotFound; of a directory or URL also NotAStore
    and UnsupportedFormat of ``storage.errors``.
    """
    bounds = checked_start(start), checked_start(end)
    schema = schema_of(columns)
    if isinstance(source, str) and not address_problem(source):
        with Client(reader=source, tls=tls, access_key=access_key, secret_key=secret_key) as client:
            batches = list(_of_reader(client, topic, bounds, queues, columns, tag))
    else:
        batches = _of_store(
            os.fspath(source), topic, bounds, queues, schema, tag, storage_options or {}
        )
    return table_of(batches, schema)


def _of_store(
    source: str, topic: str, bounds: tuple[Position, Position], queues: Sequence[int] | None,
    schema: pa.Schema, tag: str, storage_options: Mapping[str, Any],
) -> list[pa.RecordBatch]:  # fmt: skip
    tags = [] if tag in ("", "*") else [each.strip() for each in tag.split("||") if each.strip()]
    start, end = map(_place, bounds)
    try:
        return batches_of_store(
            source, topic, schema, storage_options, queues=queues, start=start, end=end, tags=tags
        )
    except errors.InvalidMessage as error:
        raise InvalidArgument(str(error), field=error.field) from None
    except errors.TopicNotFound as error:
        raise TopicNotFound(str(error)) from error
    except errors.DamagedRecord as error:
        raise DataLoss(f"store {source}, topic {topic!r}: {error}", topic=topic) from error


def _of_reader(
    client: Client, topic: str, bounds: tuple[Position, Position], queues: Sequence[int] | None,
    columns: Sequence[str] | None, tag: str,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    for queue_id in _queue_ids(client, topic) if queues is None else queues:
        begin, end = (_offset(client, topic, queue_id, each) for each in bounds)
        if begin < end:
            with client.pull_arrow(
                topic, queue_id, begin, end_offset=end, columns=columns, tag=tag
            ) as batches:
                yield from batches


def _queue_ids(client: Client, topic: str) -> tuple[int, ...]:
    return client.run(topics.queues_to_read(topic))


def _offset(client: Client, topic: str, queue_id: int, position: Position) -> int:
    if isinstance(position, int):
        return position
    return client.offset(topic, queue_id, position).queue_offset


def _place(position: Position) -> Callable[[Any, Any], int]:
    """Return what finds the queue offset of a position in a queue of a store."""

    def place(plan: Any, queue: Any) -> int:
        if isinstance(position, datetime):
            found = plan.offset_at_time(queue, unix_ms(position))
            return queue.end if found is None else int(found)
        if isinstance(position, int):
            return position
        return int(queue.begin if position == "earliest" else queue.end)

    return place
