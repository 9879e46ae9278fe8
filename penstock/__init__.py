"""Penstock's client: store messages, read them back, manage topics.

`Client` is synchronous, `AsyncClient` the same for asyncio::

    from penstock import Client

    with Client() as client:
        client.create_topic("orders", queues=4)
        client.produce("orders", b"one pen", keys=["order-1"], tag="new")
        for record in client.consume("orders", follow=False):
            print(record.queue_offset, record.body)
"""

from __future__ import annotations

from penstock.aio import AsyncClient
from penstock.aio_consumer import AsyncConsumer, AsyncKeyRecords
from penstock.aio_producer import AsyncHandle, AsyncProducer
from penstock.batch import RecordBatch
from penstock.client import Client
from penstock.consumer import Consumer, KeyRecords
from penstock.errors import (
    BatchFull,
    Cancelled,
    ClientClosed,
    DataLoss,
    DeadlineExceeded,
    DeliveryFailed,
    FailedPrecondition,
    InvalidArgument,
    MessageNotFound,
    NotFound,
    OffsetOutOfRange,
    PenstockError,
    QueueNotFound,
    ResourceExhausted,
    ServiceFailed,
    TopicExists,
    TopicNotFound,
    Unavailable,
    Unimplemented,
    UnknownOutcome,
)
from penstock.producer import Handle, Producer
from penstock.record import Record, Records
from penstock.retry import RetryPolicy
from penstock.values import (
    Damage,
    GroupOffset,
    IndexerStatus,
    Message,
    OffsetRange,
    PullResult,
    PullStatus,
    QueueRange,
    ReaderStatus,
    Stored,
    StoredBatch,
    Topic,
    TopicDescription,
    WriterStatus,
)

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncHandle",
    "AsyncKeyRecords",
    "AsyncProducer",
    "BatchFull",
    "Cancelled",
    "Client",
    "ClientClosed",
    "Consumer",
    "Damage",
    "DataLoss",
    "DeadlineExceeded",
    "DeliveryFailed",
    "FailedPrecondition",
    "GroupOffset",
    "Handle",
    "IndexerStatus",
    "InvalidArgument",
    "KeyRecords",
    "Message",
    "MessageNotFound",
    "NotFound",
    "OffsetOutOfRange",
    "OffsetRange",
    "PenstockError",
    "Producer",
    "PullResult",
    "PullStatus",
    "QueueNotFound",
    "QueueRange",
    "ReaderStatus",
    "Record",
    "RecordBatch",
    "Records",
    "ResourceExhausted",
    "RetryPolicy",
    "ServiceFailed",
    "Stored",
    "StoredBatch",
    "Topic",
    "TopicDescription",
    "TopicExists",
    "TopicNotFound",
    "Unavailable",
    "Unimplemented",
    "UnknownOutcome",
    "WriterStatus",
]
