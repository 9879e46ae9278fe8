"""How the transactions ended that ended last, so that who asks again gets the first answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.transactions.values import TransactionState

REMEMBERED_MAX: Final = 65_536


class EndedTransactions:
    """State and number of messages by transaction id; the one that ended first is forgotten first."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, tuple[TransactionState, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ended)

    def get(self, transaction_id: str) -> tuple[TransactionState, int] | None:
        """Return how a transaction ended; None if that is not known."""
        return self._ended.get(transaction_id)

    def add(self, transaction_id: str, state: TransactionState, message_count: int) -> None:
        """Remember how a transaction ended."""
        self._ended[transaction_id] = state, message_count
        self._ended.move_to_end(transaction_id)
        if len(self._ended) > REMEMBERED_MAX:
            self._ended.popitem(last=False)

    def remember(self, ended: Mapping[str, tuple[TransactionState, int]]) -> None:
        """Remember many, the one that ended last at the end."""
        for transaction_id, (state, message_count) in ended.items():
            self.add(transaction_id, state, message_count)
