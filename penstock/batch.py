"""Record batches: messages encoded by the client, stored by the writer as they are.

The encoded form is a client's record of docs/format.md: what the writer fills in (queue offset,
commit offset, store time and host, the record's own CRC) is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final

from isal.isal_zlib import crc32

from penstock.errors import BatchFull, InvalidArgument
from penstock.tracing import traced
from storage.clock import Clock, SystemClock
from storage.errors import InvalidMessage
from storage.format.hosts import ANY_HOST
from storage.format.limits import checked_properties
from storage.format.record_template import TRAILER, RecordTemplate

SIZE_MAX_DEFAULT: Final = 4 << 20
NO_PROPERTIES: Final[Mapping[str, str]] = {}

Keys = Sequence[str]


class RecordBatch:
    """Messages of one topic, encoded as they are added; stored all or none.

    ``queue_id`` is the queue of messages that name no other one. A batch takes at most
    ``size_max`` bytes of encoded records.
    """

    def __init__(
        self,
        topic: str,
        *,
        queue_id: int = 0,
        size_max: int = SIZE_MAX_DEFAULT,
        born_host: str = ANY_HOST,
        clock: Clock | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.size_max = size_max
        self._born_host = born_host
        self._born_timestamp_ms = (clock or SystemClock()).now_ms()
        self._templates: dict[tuple[int, int], RecordTemplate] = {}
        self._records: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size(self) -> int:
        """Bytes of the encoded records so far."""
        return self._size

    def add(
        self,
        body: bytes,
        *,
        keys: Keys = (),
        tag: str = "",
        properties: Mapping[str, str] = NO_PROPERTIES,
        unique_key: str = "",
        queue_id: int | None = None,
        flag: int = 0,
    ) -> None:
        """Add one message; BatchFull if it does not fit, InvalidArgument if it breaks a rule."""
        block = properties_block(keys, tag, properties, unique_key)
        template = self._template(self.queue_id if queue_id is None else queue_id, flag)
        record = template.encode(body, block)
        if self._size + len(record) > self.size_max:
            raise BatchFull(
                f"{len(record)} bytes more than the {self._size} there are exceed the batch's"
                f" {self.size_max}"
            )
        self._records.append(record)
        self._size += len(record)

    def add_many(
        self,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[Keys] | None = None,
        tags: Sequence[str] | str = "",
        queue_ids: Sequence[int] | int | None = None,
    ) -> int:
        """Add messages from the front until the batch is full; return how many were added.

        ``keys``, ``tags`` and ``queue_ids`` go with ``bodies`` one by one; a single tag or queue id
        is that of all.
        """
        one_queue = self.queue_id if queue_ids is None else queue_ids
        blocks: Iterable[bytes]
        if keys is None and isinstance(tags, str):
            blocks = repeat(properties_block((), tags), len(bodies))
        else:
            all_keys = keys if keys is not None else ((),) * len(bodies)
            all_tags = (tags,) * len(bodies) if isinstance(tags, str) else tags
            if not len(all_keys) == len(all_tags) == len(bodies):
                raise ValueError(
                    f"{len(bodies)} bodies, {len(all_keys)} keys and {len(all_tags)} tags"
                )
            blocks = map(properties_block, all_keys, all_tags)
        if isinstance(one_queue, int):
            encode = self._template(one_queue, 0).encode
            encoded: Iterable[bytes] = map(encode, bodies, blocks)
        else:
            encoders = {queue: self._template(queue, 0).encode for queue in set(one_queue)}
            encoded = (
                encoders[queue](body, block)
                for body, block, queue in zip(bodies, blocks, one_queue, strict=True)
            )
        before, size, size_max = len(self._records), self._size, self.size_max
        append = self._records.append
        for record in encoded:
            if size + len(record) > size_max:
                break
            append(record)
            size += len(record)
        self._size = size
        return len(self._records) - before

    def clear(self) -> None:
        """Forget all messages, to fill the batch again."""
        self._records.clear()
        self._size = 0

    def records(self) -> bytes:
        """Return the encoded records one after the other."""
        return b"".join(self._records)

    def _template(self, queue_id: int, flag: int) -> RecordTemplate:
        template = self._templates.get((queue_id, flag))
        if template is None:
            template = self._templates[queue_id, flag] = record_template(
                self.topic,
                queue_id,
                flag=flag,
                born_timestamp_ms=self._born_timestamp_ms,
                born_host=self._born_host,
            )
        return template


def record_template(
    topic: str,
    queue_id: int,
    *,
    born_timestamp_ms: int,
    flag: int = 0,
    born_host: str = ANY_HOST,
) -> RecordTemplate:
    """Return what a queue's records share; InvalidArgument if no record can hold it."""
    for field, number in (("queue_id", queue_id), ("flag", flag)):
        if not -(1 << 31) <= number < 1 << 31:
            raise InvalidArgument(f"{field}: {number} does not fit into 32 bits", field=field)
    try:
        return RecordTemplate(
            topic,
            queue_id,
            flag=flag,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            crc=crc32,
        )
    except ValueError as error:
        field = "topic" if isinstance(error, UnicodeError) else ""
        raise InvalidArgument(f"{field or 'record'}: {error}", field=field) from error


def properties_block(
    keys: Keys, tag: str, properties: Mapping[str, str] = NO_PROPERTIES, unique_key: str = ""
) -> bytes:
    """Encode a message's properties with room for the record's CRC after them.

    InvalidArgument names the field that breaks a rule.
    """
    properties = traced(properties)
    if isinstance(keys, str):
        raise InvalidArgument("keys: give a sequence of keys, not one text", field="keys")
    if not (keys or tag or properties or unique_key):
        return TRAILER
    try:
        return checked_properties(keys, tag, properties, unique_key, wait=False) + TRAILER
    except InvalidMessage as error:
        raise InvalidArgument(str(error), field=error.field) from error
