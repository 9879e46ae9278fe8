"""Messages that are stored, one call for some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock import wire
from penstock.batch import NO_PROPERTIES, Keys, RecordBatch
from penstock.calls.call import Call
from penstock.calls.operation import operation
from penstock.calls.timers import Delay, DeliverAt, delay_ms, deliver_at_ms
from penstock.requests import FRAME_OVERHEAD_MAX, build, check_size, key_tuple, value_of
from penstock.retry import Repeat
from penstock.tracing import traced
from penstock.v1 import common_pb2, writer_pb2
from penstock.values import Message, QueueRange, Stored, StoredBatch


def store(
    messages: Sequence[Message], *, bytes_max: int, token: str = "", timeout_s: float | None = None
) -> Call[list[Stored]]:
    """Store messages, all or none, and once. InvalidArgument if they are more than a request may hold."""
    request = writer_pb2.ProduceRequest(messages=[_message(each) for each in messages])
    data = request.SerializeToString()
    check_size("messages", len(data), bytes_max)
    return Call(
        wire.PRODUCE,
        data,
        lambda response: [
            value_of(Stored, each, repeated=response.repeated) for each in response.results
        ],
        repeat=Repeat.ONCE,
        with_producer=lambda field: data + field,
        token=token,
        timeout_s=timeout_s,
    )


def store_batch(
    records: bytes | bytearray | memoryview,
    *,
    bytes_max: int,
    token: str = "",
    timeout_s: float | None = None,
) -> Call[StoredBatch]:
    """Store encoded records, as `store` does messages."""
    check_size("records", len(records) + FRAME_OVERHEAD_MAX, bytes_max)
    return batch_of((records,), token=token, timeout_s=timeout_s)


def batch_of(
    records: Sequence[bytes | bytearray | memoryview],
    *,
    token: str = "",
    timeout_s: float | None = None,
) -> Call[StoredBatch]:
    """Store encoded records that fit into a request, given in parts."""
    return Call(
        wire.PRODUCE_BATCH,
        (b"", *records),
        stored_batch,
        repeat=Repeat.ONCE,
        with_producer=lambda field: (field, *records),
        token=token,
        timeout_s=timeout_s,
    )


def stored_batch(answer: writer_pb2.ProduceBatchResponse) -> StoredBatch:
    """Return where a record batch went."""
    ranges = tuple(
        QueueRange(each.topic, each.queue_id, each.first_queue_offset, each.count)
        for each in answer.ranges
    )
    return value_of(StoredBatch, answer, ranges=ranges)


class ProduceOperations:
    """Messages that are stored, one call for some."""

    request_bytes_max: int

    @operation
    def produce(
        self,
        topic: str,
        body: bytes,
        *,
        keys: Keys = (),
        tag: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str = "",
        flag: int = 0,
        deliver_at: DeliverAt | None = None,
        delay: Delay | None = None,
        delay_level: int = 0,
        token: str = "",
        timeout_s: float | None = None,
    ) -> Call[Stored]:
        """Store one message; on return it is as durable as the writer's flush mode promises.

        The client sends it again while no answer comes, and the writer stores it once.

        ``deliver_at`` (a datetime, or Unix milliseconds), ``delay`` (a timedelta, or seconds) or
        ``delay_level`` (1 to 18) delivers it later; `recall` cancels it until then.

        Raises UnknownOutcome if no answer came in ``timeout_s``: the same call with its ``token`` finds out.
        """
        message = Message(
            topic=topic,
            body=body,
            keys=key_tuple(keys),
            tag=tag,
            properties=properties or NO_PROPERTIES,
            queue_id=queue_id,
            unique_key=unique_key,
            flag=flag,
            delay_level=delay_level,
            deliver_at_ms=deliver_at_ms(deliver_at),
            delay_ms=delay_ms(delay),
        )
        call = store([message], bytes_max=self.request_bytes_max, token=token, timeout_s=timeout_s)
        return call.then(lambda stored: stored[0])

    @operation
    def produce_many(
        self, messages: Sequence[Message], *, token: str = "", timeout_s: float | None = None
    ) -> Call[list[Stored]]:
        """Store messages in one call, all or none; results are in the order given.

        ``token`` is that of an UnknownOutcome of the same messages.
        """
        return store(messages, bytes_max=self.request_bytes_max, token=token, timeout_s=timeout_s)

    @operation
    def produce_batch(
        self,
        batch: RecordBatch | bytes | bytearray | memoryview,
        *,
        token: str = "",
        timeout_s: float | None = None,
    ) -> Call[StoredBatch]:
        """Store encoded records in one call, all or none; ``token`` is as in `produce_many`."""
        records = batch.records() if isinstance(batch, RecordBatch) else batch
        return store_batch(
            records, bytes_max=self.request_bytes_max, token=token, timeout_s=timeout_s
        )


def _message(message: Message) -> common_pb2.Message:
    named = message._replace(properties=dict(traced(message.properties)))
    return build(common_pb2.Message, **named._asdict())
