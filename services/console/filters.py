"""Filters of messages that a page shows, as the reader has them for consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from services.console.page import BadInput

if TYPE_CHECKING:
    from penstock import Record, Records


def matching(records: Records | Sequence[Record], sql: str) -> list[Record]:
    """Return the records that an SQL92 filter lets through, all without one. Raises BadInput."""
    if not sql:
        return list(records)
    import numpy as np

    from storage.errors import InvalidMessage
    from storage.view.filters.sql_filter import (
        sql_filter,
    )  # compiled kernels: when the first is asked for

    try:
        chosen = sql_filter(sql)
    except InvalidMessage as error:
        raise BadInput(f"SQL filter: {error}") from None
    found = list(records)
    if not found:
        return []
    raw = b"".join(bytes(record.raw) for record in found)
    sizes = np.array([record.size for record in found], np.int64)
    positions = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)[:-1]))
    mask = chosen.matching(np.frombuffer(raw, np.uint8), positions)
    return [record for record, is_chosen in zip(found, mask, strict=True) if is_chosen]
