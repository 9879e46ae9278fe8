"""What is wrong now: the rules of deploy/observability/alerts.yml that the services' statuses show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock import IndexerStatus, LeaseStatus, ReaderStatus, RetentionReport, WriterStatus

BEHIND_BYTES_MAX: Final = 64 << 20
LATE_MS_MAX: Final = 10_000
HALF_AGE_MS_MAX: Final = 3_600_000


class Alert(NamedTuple):
    """Something that is wrong: its name in Prometheus' rules, what it is, and what to do."""

    name: str
    problem: str
    advice: str = ""


class Statuses(NamedTuple):
    """What the services said of themselves; None: nothing yet."""

    writer: WriterStatus | None
    reader: ReaderStatus | None
    indexer: IndexerStatus | None
    retention: RetentionReport | None
    leases: LeaseStatus | None


def alerts_of(seen: Statuses, now_ms: int) -> Iterator[Alert]:
    """Yield what is wrong, the worst first."""
    writer, reader, indexer, retention, leases = seen
    if writer is not None and not writer.writable:
        yield Alert("PenstockNotWritable", writer.problem or "The writer takes no writes.")
    if retention is not None and retention.refuses_appends:
        yield Alert(
            "PenstockNotWritable",
            retention.problem or "Appends are refused: the disk is full.",
            f"They are taken again below {retention.force_percent} % of the disk.",
        )
    elif retention is not None and retention.used_percent > retention.force_percent:
        yield Alert(
            "PenstockDiskNearRefusal",
            f"The disk is {retention.used_percent} % used; from {retention.refuse_percent} % on appends are refused.",
        )
    elif retention is not None and retention.problem:
        yield Alert("PenstockRetention", retention.problem)
    if leases is not None and leases.problem:
        yield Alert(
            "PenstockLeases", leases.problem, "Nothing is leased until the reader starts again."
        )
    if reader is not None and not reader.writer_alive:
        yield Alert("PenstockDown", "The reader sees no living writer.")
    if indexer is not None and indexer.problem:
        yield Alert("PenstockIndexBehind", f"The index is stopped: {indexer.problem}")
    elif indexer is not None and indexer.confirm_offset - indexer.indexed_offset > BEHIND_BYTES_MAX:
        yield Alert("PenstockIndexBehind", "The index is more than 64 MiB behind.")
    if writer is not None:
        if writer.appended_offset - writer.dispatched_offset > BEHIND_BYTES_MAX:
            yield Alert("PenstockDispatchBehind", "Consumers see less than is stored: 64 MiB.")
        if writer.timers_late_ms > LATE_MS_MAX:
            yield Alert("PenstockDelayedMessagesLate", "Delayed messages are delivered late.")
        if writer.oldest_half_ms and now_ms - writer.oldest_half_ms > HALF_AGE_MS_MAX:
            yield Alert(
                "PenstockTransactionOld",
                "A transaction has been open for more than an hour.",
                "End it on the page of delayed messages and transactions.",
            )
        if writer.scrub_finding_count:
            yield Alert(
                "PenstockDamageFound",
                f"{writer.scrub_finding_count:,} findings since the writer's start: {writer.scrub_last_finding}",
                "penstock doctor STORE names each, and what repairs it.",
            )
    if indexer is not None and indexer.damaged_count:
        yield Alert(
            "PenstockDamageFound",
            f"{indexer.damaged_count:,} index files were damaged or missing, and rebuilt.",
        )
