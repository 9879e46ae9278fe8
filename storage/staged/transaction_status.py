"""What an operator sees of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from storage.staged.ledger import Outcome
from storage.staged.open_transaction import OpenTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """One staged attempt."""

    attempt: str
    record_count: int
    byte_count: int
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """One transaction that is not committed; ``problem`` says why a decided one is not."""

    version: int
    decided: bool
    problem: str
    stages: tuple[StageState, ...]

    @classmethod
    def of(cls, transaction: OpenTransaction) -> TransactionState:
        """Return what is to be told of a transaction."""
        return cls(
            version=transaction.version,
            decided=transaction.intent is not None,
            problem=transaction.problem,
            stages=tuple(
                StageState(
                    attempt=attempt,
                    record_count=stage.seal.record_count,
                    byte_count=stage.seal.byte_count,
                    created_ms=stage.header.created_ms,
                )
                for attempt, stage in sorted(transaction.stages.items())
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
    """One application: its highest committed version (-1: none) and its open transactions."""

    app_id: str
    last_version: int
    last: Outcome | None
    transactions: tuple[TransactionState, ...]
