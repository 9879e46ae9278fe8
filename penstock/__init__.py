"""Penstock's client: store messages, read them back, manage topics.

`Client` is synchronous, `AsyncClient` the same for asyncio::

    from penstock import Client

    with Client() as client:
        client.create_topic("orders", queues=4)
        client.produce("orders", b"one pen", keys=["order-1"], tag="new")
        for record in client.consume("orders", follow=False):
            print(record.queue_offset, record.body)

Names are loaded when first used, so that the services, which need the contract of ``penstock.v1``
alone, never load the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock._async.client import AsyncClient
    from penstock._async.consumer import AsyncConsumer, AsyncKeyRecords
    from penstock._async.staged_commit import AsyncStagedCommit
    from penstock._sync.client import Client
    from penstock._sync.consumer import Consumer, KeyRecords
    from penstock._sync.staged_commit import StagedCommit
    from penstock.batch import RecordBatch
    from penstock.errors import (
        BatchFull,
        Cancelled,
        ClientClosed,
        DataLoss,
        DeadlineExceeded,
        DeliveryFailed,
        FailedPrecondition,
        IndexDamaged,
        InvalidArgument,
        MessageNotFound,
        NotFound,
        OffsetOutOfRange,
        PenstockError,
        QueueNotFound,
        ResourceExhausted,
        ServiceFailed,
        StageExists,
        StageNotFound,
        TopicExists,
        TopicNotFound,
        Unavailable,
        Unimplemented,
        UnknownOutcome,
    )
    from penstock.producing.tasks import AsyncHandle, AsyncProducer
    from penstock.producing.threads import Handle, Producer
    from penstock.record import Record, Records
    from penstock.retry import RetryPolicy
    from penstock.values import (
        Committed,
        Damage,
        GroupOffset,
        IndexerStatus,
        Message,
        OffsetRange,
        OpenStagedCommit,
        PullResult,
        PullStatus,
        QueueRange,
        ReaderStatus,
        Staged,
        StagedApplication,
        Stored,
        StoredBatch,
        Topic,
        TopicDescription,
        UncoveredRange,
        WriterStatus,
    )

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncHandle",
    "AsyncKeyRecords",
    "AsyncProducer",
    "AsyncStagedCommit",
    "BatchFull",
    "Cancelled",
    "Client",
    "ClientClosed",
    "Committed",
    "Consumer",
    "Damage",
    "DataLoss",
    "DeadlineExceeded",
    "DeliveryFailed",
    "FailedPrecondition",
    "GroupOffset",
    "Handle",
    "IndexDamaged",
    "IndexerStatus",
    "InvalidArgument",
    "KeyRecords",
    "Message",
    "MessageNotFound",
    "NotFound",
    "OffsetOutOfRange",
    "OffsetRange",
    "OpenStagedCommit",
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
    "StageExists",
    "StageNotFound",
    "Staged",
    "StagedApplication",
    "StagedCommit",
    "Stored",
    "StoredBatch",
    "Topic",
    "TopicDescription",
    "TopicExists",
    "TopicNotFound",
    "Unavailable",
    "UncoveredRange",
    "Unimplemented",
    "UnknownOutcome",
    "WriterStatus",
]

_HOMES: Final = {
    "AsyncClient": "penstock._async.client",
    "AsyncConsumer": "penstock._async.consumer",
    "AsyncHandle": "penstock.producing.tasks",
    "AsyncKeyRecords": "penstock._async.consumer",
    "AsyncProducer": "penstock.producing.tasks",
    "AsyncStagedCommit": "penstock._async.staged_commit",
    "BatchFull": "penstock.errors",
    "Cancelled": "penstock.errors",
    "Client": "penstock._sync.client",
    "ClientClosed": "penstock.errors",
    "Committed": "penstock.values",
    "Consumer": "penstock._sync.consumer",
    "Damage": "penstock.values",
    "DataLoss": "penstock.errors",
    "DeadlineExceeded": "penstock.errors",
    "DeliveryFailed": "penstock.errors",
    "FailedPrecondition": "penstock.errors",
    "IndexDamaged": "penstock.errors",
    "GroupOffset": "penstock.values",
    "Handle": "penstock.producing.threads",
    "IndexerStatus": "penstock.values",
    "InvalidArgument": "penstock.errors",
    "KeyRecords": "penstock._sync.consumer",
    "Message": "penstock.values",
    "MessageNotFound": "penstock.errors",
    "NotFound": "penstock.errors",
    "OffsetOutOfRange": "penstock.errors",
    "OffsetRange": "penstock.values",
    "OpenStagedCommit": "penstock.values",
    "PenstockError": "penstock.errors",
    "Producer": "penstock.producing.threads",
    "PullResult": "penstock.values",
    "PullStatus": "penstock.values",
    "QueueNotFound": "penstock.errors",
    "QueueRange": "penstock.values",
    "ReaderStatus": "penstock.values",
    "Record": "penstock.record",
    "RecordBatch": "penstock.batch",
    "Records": "penstock.record",
    "ResourceExhausted": "penstock.errors",
    "RetryPolicy": "penstock.retry",
    "ServiceFailed": "penstock.errors",
    "StageExists": "penstock.errors",
    "StageNotFound": "penstock.errors",
    "Staged": "penstock.values",
    "Stored": "penstock.values",
    "StoredBatch": "penstock.values",
    "Topic": "penstock.values",
    "TopicDescription": "penstock.values",
    "UncoveredRange": "penstock.values",
    "TopicExists": "penstock.errors",
    "TopicNotFound": "penstock.errors",
    "StagedCommit": "penstock._sync.staged_commit",
    "StagedApplication": "penstock.values",
    "Unavailable": "penstock.errors",
    "Unimplemented": "penstock.errors",
    "UnknownOutcome": "penstock.errors",
    "WriterStatus": "penstock.values",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
