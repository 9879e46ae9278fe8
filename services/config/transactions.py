"""Settings of transactions, which the writer checks."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from storage.config import StoreConfig

_ENGINE: Final = StoreConfig()


class TransactionSettings(BaseModel):
    """When producers are asked about transactions that nobody has ended."""

    transaction_timeout_ms: int = Field(
        _ENGINE.transaction_timeout_ms,
        ge=1,
        description="Time until a producer is asked what becomes of a transaction.",
    )
    transaction_check_interval_ms: int = Field(
        _ENGINE.transaction_check_interval_ms, ge=1, description="Time between two such questions."
    )
    transaction_check_max: int = Field(
        _ENGINE.transaction_check_max, ge=1, description="Questions until it is given up."
    )
    transaction_age_max_ms: int = Field(
        _ENGINE.transaction_age_max_ms, ge=1, description="Age at which it is given up."
    )
    transaction_pending_max: int = Field(
        _ENGINE.transaction_pending_max,
        ge=1,
        description="Half messages that may be pending; more are refused until some are ended.",
    )
