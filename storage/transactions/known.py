"""Which messages of a batch are half messages already: what tells one that is sent again from a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.engine.repeats import body_crcs
from storage.errors import InvalidBatch, InvalidMessage, TransactionExists
from storage.kernels.columns import SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.log.batches import Prepared
    from storage.transactions.halves import HalfTable

HALF_GROWTH_BYTES: Final = (
    256  # about what a half is longer than its message, and its part of an op record
)


def known_offsets(
    table: HalfTable, ids: Sequence[str], keys: Sequence[str], sent: Prepared, key_prefix: str,
    bytes_max: int,
) -> list[int | None]:  # fmt: skip
    """Return for each message the queue offset of its half, None if it is not stored.

    ``ids`` and ``keys`` are its transaction's and its unique key. Raises TransactionExists, InvalidBatch, InvalidMessage
    where a transaction would have more than ``bytes_max``.
    """
    sizes: dict[str, int] = {}
    for transaction_id in set(ids):
        # All before the last one have the prefix, too, or it had been refused.
        if transaction_id in table and not table.last_key(transaction_id).startswith(key_prefix):
            raise TransactionExists(transaction_id)
        sizes[transaction_id] = table.size_of(transaction_id)
    crcs = body_crcs(sent.data, sent.rows[: sent.record_count])
    known: list[int | None] = []
    seen = set()
    for row, (transaction_id, key) in enumerate(zip(ids, keys, strict=True)):
        if (transaction_id, key) in seen:
            raise InvalidBatch(row, "two messages of a transaction have the same UNIQ_KEY")
        seen.add((transaction_id, key))
        if not key.startswith(key_prefix):
            raise InvalidBatch(row, "its UNIQ_KEY does not begin with the key_prefix")
        found = table.find(transaction_id, key)
        if found is None:
            sizes[transaction_id] += int(sent.rows[row, SIZE]) + HALF_GROWTH_BYTES
        elif found[1] != int.from_bytes(crcs[row]):
            raise InvalidBatch(row, "another message with its UNIQ_KEY is part of the transaction")
        known.append(None if found is None else found[0])
    if max(sizes.values()) > bytes_max:
        raise InvalidMessage("records", f"a transaction has at most {bytes_max} bytes")
    return known
