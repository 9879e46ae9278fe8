"""Penstock's client: store messages, read them back, manage topics.

`Client` is synchronous, `AsyncClient` the same for asyncio::

    from penstock import Client

    with Client() as client:
        client.create_topic("orders", queues=4)
        client.produce("orders", b"one pen", keys=["order-1"], tag="new")
        for record in client.consume("orders", follow=False):
            print(record.queue_offset, record.body)

Names are loaded when first used, so that the services, which need the contract of ``penstock.v1``
alone, never load the client. Type checkers see the imports below.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.batch import RecordBatch as RecordBatch
    from penstock.calls.accounts import (
        Limits as Limits,
        NewSecret as NewSecret,
        Policy as Policy,
        User as User,
    )
    from penstock.calls.dead_letters import DeadLetterCount as DeadLetterCount
    from penstock.calls.groups import (
        ConnectedClient as ConnectedClient,
        ExponentialBackoff as ExponentialBackoff,
        Group as Group,
        GroupDescription as GroupDescription,
        GroupQueue as GroupQueue,
        QueueReset as QueueReset,
    )
    from penstock.calls.leases import MessageTrack as MessageTrack
    from penstock.calls.status import (
        GroupLag as GroupLag,
        GroupLeases as GroupLeases,
        LeaseStatus as LeaseStatus,
        OutTraffic as OutTraffic,
        SentTraffic as SentTraffic,
        StoredTraffic as StoredTraffic,
    )
    from penstock.calls.transactions import (
        EndedTransaction as EndedTransaction,
        PendingTransaction as PendingTransaction,
        PendingTransactions as PendingTransactions,
        TransactionCheck as TransactionCheck,
    )
    from penstock.client.client import AsyncClient as AsyncClient, Client as Client
    from penstock.client.consumer import AsyncConsumer as AsyncConsumer, Consumer as Consumer
    from penstock.client.key_records import (
        AsyncKeyRecords as AsyncKeyRecords,
        KeyRecords as KeyRecords,
    )
    from penstock.client.staged_commit import (
        AsyncStagedCommit as AsyncStagedCommit,
        StagedCommit as StagedCommit,
    )
    from penstock.client.subscription import (
        AsyncSubscription as AsyncSubscription,
        Subscription as Subscription,
    )
    from penstock.client.tables import (
        ArrowConsumer as ArrowConsumer,
        ArrowStream as ArrowStream,
        ArrowSubscription as ArrowSubscription,
        AsyncArrowConsumer as AsyncArrowConsumer,
        AsyncArrowStream as AsyncArrowStream,
        AsyncArrowSubscription as AsyncArrowSubscription,
    )
    from penstock.client.transactions import (
        AsyncTransaction as AsyncTransaction,
        AsyncTransactionChecker as AsyncTransactionChecker,
        Transaction as Transaction,
        TransactionChecker as TransactionChecker,
    )
    from penstock.errors import (
        BatchFull as BatchFull,
        Cancelled as Cancelled,
        ClientClosed as ClientClosed,
        DataLoss as DataLoss,
        DeadlineExceeded as DeadlineExceeded,
        DeliveryFailed as DeliveryFailed,
        FailedPrecondition as FailedPrecondition,
        GroupExists as GroupExists,
        GroupNotFound as GroupNotFound,
        IndexDamaged as IndexDamaged,
        InvalidArgument as InvalidArgument,
        MessageNotFound as MessageNotFound,
        NotFound as NotFound,
        OffsetOutOfRange as OffsetOutOfRange,
        PenstockError as PenstockError,
        PermissionDenied as PermissionDenied,
        PolicyExists as PolicyExists,
        PolicyNotFound as PolicyNotFound,
        QueueNotFound as QueueNotFound,
        ResourceExhausted as ResourceExhausted,
        ServiceFailed as ServiceFailed,
        StageExists as StageExists,
        StageNotFound as StageNotFound,
        TableNotStored as TableNotStored,
        TopicExists as TopicExists,
        TopicNotFound as TopicNotFound,
        TransactionExists as TransactionExists,
        TransactionRefused as TransactionRefused,
        Unauthenticated as Unauthenticated,
        Unavailable as Unavailable,
        Unimplemented as Unimplemented,
        UnknownOutcome as UnknownOutcome,
        UnreadableBody as UnreadableBody,
        UsedElsewhere as UsedElsewhere,
        UserExists as UserExists,
        UserNotFound as UserNotFound,
    )
    from penstock.leased import (
        LeasedBatch as LeasedBatch,
        LeasedRecord as LeasedRecord,
        Received as Received,
        RefusedHandle as RefusedHandle,
    )
    from penstock.producing.handles import AsyncHandle as AsyncHandle, Handle as Handle
    from penstock.producing.producer import AsyncProducer as AsyncProducer, Producer as Producer
    from penstock.record import Record as Record, Records as Records
    from penstock.retry import RetryPolicy as RetryPolicy
    from penstock.table_source import read_table as read_table
    from penstock.tables import MissingArrow as MissingArrow
    from penstock.tls import BadTlsFile as BadTlsFile, TLS as TLS
    from penstock.values import (
        Committed as Committed,
        Damage as Damage,
        GroupOffset as GroupOffset,
        IndexerStatus as IndexerStatus,
        Message as Message,
        OffsetRange as OffsetRange,
        OpenStagedCommit as OpenStagedCommit,
        PullResult as PullResult,
        PullStatus as PullStatus,
        QueueRange as QueueRange,
        ReaderStatus as ReaderStatus,
        RetentionReport as RetentionReport,
        RunningSettings as RunningSettings,
        Staged as Staged,
        StagedApplication as StagedApplication,
        Stored as Stored,
        StoredBatch as StoredBatch,
        StoredQueue as StoredQueue,
        StoredTable as StoredTable,
        Topic as Topic,
        TopicDescription as TopicDescription,
        UncoveredRange as UncoveredRange,
        WriterStatus as WriterStatus,
    )

_NAMES: Final = {
    "penstock.batch": "RecordBatch",
    "penstock.calls.accounts": "Limits NewSecret Policy User",
    "penstock.calls.dead_letters": "DeadLetterCount",
    "penstock.calls.groups": (
        "ConnectedClient ExponentialBackoff Group GroupDescription GroupQueue QueueReset"
    ),
    "penstock.calls.leases": "MessageTrack",
    "penstock.calls.status": "GroupLag GroupLeases LeaseStatus OutTraffic SentTraffic StoredTraffic",
    "penstock.calls.transactions": "EndedTransaction PendingTransaction PendingTransactions TransactionCheck",
    "penstock.client.client": "AsyncClient Client",
    "penstock.client.consumer": "AsyncConsumer Consumer",
    "penstock.client.key_records": "AsyncKeyRecords KeyRecords",
    "penstock.client.staged_commit": "AsyncStagedCommit StagedCommit",
    "penstock.client.subscription": "AsyncSubscription Subscription",
    "penstock.client.tables": (
        "ArrowConsumer ArrowStream ArrowSubscription AsyncArrowConsumer AsyncArrowStream "
        "AsyncArrowSubscription"
    ),
    "penstock.client.transactions": "AsyncTransaction AsyncTransactionChecker Transaction TransactionChecker",
    "penstock.errors": (
        "BatchFull Cancelled ClientClosed DataLoss DeadlineExceeded DeliveryFailed "
        "FailedPrecondition GroupExists GroupNotFound IndexDamaged InvalidArgument "
        "MessageNotFound NotFound OffsetOutOfRange PenstockError PermissionDenied PolicyExists "
        "PolicyNotFound QueueNotFound ResourceExhausted ServiceFailed StageExists StageNotFound "
        "TableNotStored TopicExists TopicNotFound TransactionExists TransactionRefused "
        "Unauthenticated Unavailable Unimplemented UnknownOutcome UnreadableBody UsedElsewhere "
        "UserExists UserNotFound"
    ),
    "penstock.leased": "LeasedBatch LeasedRecord Received RefusedHandle",
    "penstock.producing.handles": "AsyncHandle Handle",
    "penstock.producing.producer": "AsyncProducer Producer",
    "penstock.record": "Record Records",
    "penstock.retry": "RetryPolicy",
    "penstock.table_source": "read_table",
    "penstock.tables": "MissingArrow",
    "penstock.tls": "BadTlsFile TLS",
    "penstock.values": (
        "Committed Damage GroupOffset IndexerStatus Message OffsetRange OpenStagedCommit "
        "PullResult PullStatus QueueRange ReaderStatus RetentionReport RunningSettings Staged "
        "StagedApplication Stored StoredBatch StoredQueue StoredTable Topic TopicDescription "
        "UncoveredRange WriterStatus"
    ),
}
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
