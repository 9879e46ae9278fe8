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
    from penstock._async.subscription import AsyncSubscription
    from penstock._async.tables import (
        AsyncArrowConsumer,
        AsyncArrowStream,
        AsyncArrowSubscription,
    )
    from penstock._async.transactions import AsyncTransaction, AsyncTransactionChecker
    from penstock._sync.client import Client
    from penstock._sync.consumer import Consumer, KeyRecords
    from penstock._sync.staged_commit import StagedCommit
    from penstock._sync.subscription import Subscription
    from penstock._sync.tables import ArrowConsumer, ArrowStream, ArrowSubscription
    from penstock._sync.transactions import Transaction, TransactionChecker
    from penstock.account_values import Limits, NewSecret, Policy, User
    from penstock.batch import RecordBatch
    from penstock.errors import (
        BatchFull,
        Cancelled,
        ClientClosed,
        DataLoss,
        DeadlineExceeded,
        DeliveryFailed,
        FailedPrecondition,
        GroupExists,
        GroupNotFound,
        IndexDamaged,
        InvalidArgument,
        MessageNotFound,
        NotFound,
        OffsetOutOfRange,
        PenstockError,
        PermissionDenied,
        PolicyExists,
        PolicyNotFound,
        QueueNotFound,
        ResourceExhausted,
        ServiceFailed,
        StageExists,
        StageNotFound,
        TableNotStored,
        TopicExists,
        TopicNotFound,
        TransactionExists,
        TransactionRefused,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        UnknownOutcome,
        UnreadableBody,
        UsedElsewhere,
        UserExists,
        UserNotFound,
    )
    from penstock.group_values import (
        ExponentialBackoff,
        Group,
        GroupDescription,
        GroupLeases,
        GroupQueue,
        LeaseStatus,
        QueueReset,
    )
    from penstock.leased import LeasedBatch, LeasedRecord, Received, RefusedHandle
    from penstock.producing.tasks import AsyncHandle, AsyncProducer
    from penstock.producing.threads import Handle, Producer
    from penstock.record import Record, Records
    from penstock.retry import RetryPolicy
    from penstock.table_source import read_table
    from penstock.tables import MissingArrow
    from penstock.tls import TLS, BadTlsFile
    from penstock.transaction_values import (
        EndedTransaction,
        PendingTransaction,
        PendingTransactions,
        TransactionCheck,
    )
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
        RunningSettings,
        Staged,
        StagedApplication,
        Stored,
        StoredBatch,
        StoredTable,
        Topic,
        TopicDescription,
        UncoveredRange,
        WriterStatus,
    )

__all__ = [
    "TLS",
    "ArrowConsumer",
    "ArrowStream",
    "ArrowSubscription",
    "AsyncArrowConsumer",
    "AsyncArrowStream",
    "AsyncArrowSubscription",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncHandle",
    "AsyncKeyRecords",
    "AsyncProducer",
    "AsyncStagedCommit",
    "AsyncSubscription",
    "AsyncTransaction",
    "AsyncTransactionChecker",
    "BadTlsFile",
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
    "EndedTransaction",
    "ExponentialBackoff",
    "FailedPrecondition",
    "Group",
    "GroupDescription",
    "GroupExists",
    "GroupLeases",
    "GroupNotFound",
    "GroupOffset",
    "GroupQueue",
    "Handle",
    "IndexDamaged",
    "IndexerStatus",
    "InvalidArgument",
    "KeyRecords",
    "LeaseStatus",
    "LeasedBatch",
    "LeasedRecord",
    "Limits",
    "Message",
    "MessageNotFound",
    "MissingArrow",
    "NewSecret",
    "NotFound",
    "OffsetOutOfRange",
    "OffsetRange",
    "OpenStagedCommit",
    "PendingTransaction",
    "PendingTransactions",
    "PenstockError",
    "PermissionDenied",
    "Policy",
    "PolicyExists",
    "PolicyNotFound",
    "Producer",
    "PullResult",
    "PullStatus",
    "QueueNotFound",
    "QueueRange",
    "QueueReset",
    "ReaderStatus",
    "Received",
    "Record",
    "RecordBatch",
    "Records",
    "RefusedHandle",
    "ResourceExhausted",
    "RetryPolicy",
    "RunningSettings",
    "ServiceFailed",
    "StageExists",
    "StageNotFound",
    "Staged",
    "StagedApplication",
    "StagedCommit",
    "Stored",
    "StoredBatch",
    "StoredTable",
    "Subscription",
    "TableNotStored",
    "Topic",
    "TopicDescription",
    "TopicExists",
    "TopicNotFound",
    "Transaction",
    "TransactionCheck",
    "TransactionChecker",
    "TransactionExists",
    "TransactionRefused",
    "Unauthenticated",
    "Unavailable",
    "UncoveredRange",
    "Unimplemented",
    "UnknownOutcome",
    "UnreadableBody",
    "UsedElsewhere",
    "User",
    "UserExists",
    "UserNotFound",
    "WriterStatus",
    "read_table",
]

_HOMES: Final = {
    "ArrowConsumer": "penstock._sync.tables",
    "ArrowStream": "penstock._sync.tables",
    "ArrowSubscription": "penstock._sync.tables",
    "AsyncArrowConsumer": "penstock._async.tables",
    "AsyncArrowStream": "penstock._async.tables",
    "AsyncArrowSubscription": "penstock._async.tables",
    "AsyncClient": "penstock._async.client",
    "AsyncConsumer": "penstock._async.consumer",
    "AsyncHandle": "penstock.producing.tasks",
    "AsyncKeyRecords": "penstock._async.consumer",
    "AsyncProducer": "penstock.producing.tasks",
    "AsyncStagedCommit": "penstock._async.staged_commit",
    "AsyncSubscription": "penstock._async.subscription",
    "AsyncTransaction": "penstock._async.transactions",
    "AsyncTransactionChecker": "penstock._async.transactions",
    "BadTlsFile": "penstock.tls",
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
    "EndedTransaction": "penstock.transaction_values",
    "ExponentialBackoff": "penstock.group_values",
    "FailedPrecondition": "penstock.errors",
    "Group": "penstock.group_values",
    "GroupDescription": "penstock.group_values",
    "GroupExists": "penstock.errors",
    "GroupLeases": "penstock.group_values",
    "GroupNotFound": "penstock.errors",
    "GroupOffset": "penstock.values",
    "GroupQueue": "penstock.group_values",
    "Handle": "penstock.producing.threads",
    "IndexDamaged": "penstock.errors",
    "IndexerStatus": "penstock.values",
    "InvalidArgument": "penstock.errors",
    "KeyRecords": "penstock._sync.consumer",
    "LeaseStatus": "penstock.group_values",
    "LeasedBatch": "penstock.leased",
    "LeasedRecord": "penstock.leased",
    "Limits": "penstock.account_values",
    "Message": "penstock.values",
    "MessageNotFound": "penstock.errors",
    "MissingArrow": "penstock.tables",
    "NewSecret": "penstock.account_values",
    "NotFound": "penstock.errors",
    "OffsetOutOfRange": "penstock.errors",
    "OffsetRange": "penstock.values",
    "OpenStagedCommit": "penstock.values",
    "PendingTransaction": "penstock.transaction_values",
    "PendingTransactions": "penstock.transaction_values",
    "PenstockError": "penstock.errors",
    "PermissionDenied": "penstock.errors",
    "Policy": "penstock.account_values",
    "PolicyExists": "penstock.errors",
    "PolicyNotFound": "penstock.errors",
    "Producer": "penstock.producing.threads",
    "PullResult": "penstock.values",
    "PullStatus": "penstock.values",
    "QueueNotFound": "penstock.errors",
    "QueueRange": "penstock.values",
    "QueueReset": "penstock.group_values",
    "ReaderStatus": "penstock.values",
    "Received": "penstock.leased",
    "Record": "penstock.record",
    "RecordBatch": "penstock.batch",
    "Records": "penstock.record",
    "RefusedHandle": "penstock.leased",
    "ResourceExhausted": "penstock.errors",
    "RetryPolicy": "penstock.retry",
    "RunningSettings": "penstock.values",
    "ServiceFailed": "penstock.errors",
    "StageExists": "penstock.errors",
    "StageNotFound": "penstock.errors",
    "Staged": "penstock.values",
    "StagedApplication": "penstock.values",
    "StagedCommit": "penstock._sync.staged_commit",
    "Stored": "penstock.values",
    "StoredBatch": "penstock.values",
    "StoredTable": "penstock.values",
    "Subscription": "penstock._sync.subscription",
    "TLS": "penstock.tls",
    "TableNotStored": "penstock.errors",
    "Topic": "penstock.values",
    "TopicDescription": "penstock.values",
    "TopicExists": "penstock.errors",
    "TopicNotFound": "penstock.errors",
    "Transaction": "penstock._sync.transactions",
    "TransactionCheck": "penstock.transaction_values",
    "TransactionChecker": "penstock._sync.transactions",
    "TransactionExists": "penstock.errors",
    "TransactionRefused": "penstock.errors",
    "Unauthenticated": "penstock.errors",
    "Unavailable": "penstock.errors",
    "UncoveredRange": "penstock.values",
    "Unimplemented": "penstock.errors",
    "UnknownOutcome": "penstock.errors",
    "UnreadableBody": "penstock.errors",
    "UsedElsewhere": "penstock.errors",
    "User": "penstock.account_values",
    "UserExists": "penstock.errors",
    "UserNotFound": "penstock.errors",
    "WriterStatus": "penstock.values",
    "read_table": "penstock.table_source",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
