"""The table of pending half messages: a row of numbers each, found by the transaction that it belongs to.

A transaction is all pending halves with one transaction id. A broker's clients have one half in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

_QUEUE_OFFSET: Final = 0
_COMMIT_OFFSET: Final = 1
_DUE_MS: Final = 2
_CHECK_COUNT: Final = 3
_BORN_MS: Final = 4
_TOPIC: Final = 5
_QUEUE_ID: Final = 6
_SIZE: Final = 7
_COLUMN_COUNT: Final = 8
_ROWS_FIRST: Final = 1_024
_NEVER: Final = (1 << 63) - 1
_NUMBER_DIGITS_MAX: Final = 9


class Half(NamedTuple):
    """One pending half message. ``due_ms`` is when its producer is asked next."""

    transaction_id: str
    unique_key: str
    topic: str  # where its copy goes
    queue_id: int
    queue_offset: int  # in the half queue
    commit_offset: int
    size: int  # bytes of the record
    born_ms: int
    due_ms: int
    check_count: int


def number_in(text: str, default: int, *, digits_max: int = _NUMBER_DIGITS_MAX) -> int:
    """Return the number that the value of a property is, ``default`` if it is something else or too long."""
    is_number = text.isascii() and text.isdigit() and len(text) <= digits_max
    return int(text) if is_number else default


class HalfTable:
    """Pending half messages. Whoever uses it holds the lock of ``Transactions``."""

    def __init__(self) -> None:
        self._rows = _new_rows(_ROWS_FIRST)
        self._free = list(range(_ROWS_FIRST - 1, -1, -1))
        self._names: list[tuple[str, str]] = [("", "")] * _ROWS_FIRST  # transaction id, unique key
        self._of: dict[str, list[int]] = {}
        self._topics: list[str] = []
        self._topic_numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names) - len(self._free)

    def __contains__(self, transaction_id: str) -> bool:
        return transaction_id in self._of

    def add(self, half: Half) -> None:
        """Take one in."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._names[row] = half.transaction_id, half.unique_key
        self._rows[row] = (
            half.queue_offset, half.commit_offset, half.due_ms, half.check_count, half.born_ms,
            self._topic_number(half.topic), half.queue_id, half.size,
        )  # fmt: skip
        self._of.setdefault(half.transaction_id, []).append(row)

    def of(self, transaction_id: str) -> list[Half]:
        """Return the halves of a transaction in the order of their queue offsets; none if it is not pending."""
        rows = self._of.get(transaction_id, ())
        return sorted(map(self._half, rows), key=lambda half: half.queue_offset)

    def remove(self, transaction_id: str) -> None:
        """Forget a transaction."""
        for row in self._of.pop(transaction_id, ()):
            self._rows[row] = _NEVER
            self._names[row] = "", ""
            self._free.append(row)

    def postpone(self, transaction_ids: Sequence[str], due_ms: int) -> None:
        """Set when transactions are looked at next."""
        for transaction_id in transaction_ids:
            self._rows[self._of.get(transaction_id, []), _DUE_MS] = due_ms

    def due(self, now_ms: int, count_max: int) -> list[str]:
        """Return the ids of transactions of which a half is due, the one stored first at the front."""
        rows = np.flatnonzero(self._rows[:, _DUE_MS] <= now_ms)
        rows = rows[np.argsort(self._rows[rows, _QUEUE_OFFSET])]
        return list(dict.fromkeys(self._names[row][0] for row in rows[:count_max].tolist()))

    def next_due_ms(self) -> int | None:
        """Return when the next half is due; None if there is none."""
        return int(self._rows[:, _DUE_MS].min()) if len(self) else None

    def first_queue_offset(self) -> int | None:
        """Return the lowest queue offset of a pending half; None if there is none."""
        return int(self._rows[:, _QUEUE_OFFSET].min()) if len(self) else None

    def first_commit_offset(self) -> int | None:
        """Return the lowest commit offset of a pending half, None if there is none; from any thread."""
        first = int(self._rows[:, _COMMIT_OFFSET].min())
        return None if first == _NEVER else first

    def ids(self) -> list[str]:
        """Return the ids of all pending transactions, the one stored first at the front."""
        return sorted(
            self._of, key=lambda each: int(self._rows[self._of[each], _QUEUE_OFFSET].min())
        )

    def _half(self, row: int) -> Half:
        (
            queue_offset, commit_offset, due_ms, check_count, born_ms, topic, queue_id, size,
        ) = self._rows[row].tolist()  # fmt: skip
        transaction_id, unique_key = self._names[row]
        return Half(
            transaction_id=transaction_id,
            unique_key=unique_key,
            topic=self._topics[topic],
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_offset=commit_offset,
            size=size,
            born_ms=born_ms,
            due_ms=due_ms,
            check_count=check_count,
        )

    def _topic_number(self, topic: str) -> int:
        number = self._topic_numbers.get(topic)
        if number is None:
            number = self._topic_numbers[topic] = len(self._topics)
            self._topics.append(topic)
        return number

    def _grow(self) -> None:
        count = len(self._rows)
        self._rows = np.concatenate((self._rows, _new_rows(count)))
        self._names += [("", "")] * count
        self._free = list(range(2 * count - 1, count - 1, -1))


def _new_rows(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.full((count, _COLUMN_COUNT), _NEVER, np.int64)
