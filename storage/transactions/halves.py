"""The table of pending half messages: a row of numbers each, found by transaction and by time.

A transaction is all pending halves with one transaction id. A broker's clients have one half in each. The
rows of one transaction are linked; columns lie one after the other in memory. When halves are due is a heap
of (time, row): an entry that is not its row's time any more says nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
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
_BODY_CRC: Final = 8
_NEXT: Final = 9  # row of the same transaction
_COLUMN_COUNT: Final = 10
_NO_ROW: Final = -1
_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1
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
    body_crc: int


class _KnownKeys:
    """What a transaction has that is sent to again: the row of each unique key, and the bytes of all records."""

    __slots__ = ("rows", "size")

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.size = 0

    def add(self, unique_key: str, row: int, size: int) -> None:
        """Take one half in."""
        self.rows[unique_key] = row
        self.size += size


def number_in(text: str, default: int, *, digits_max: int = _NUMBER_DIGITS_MAX) -> int:
    """Return the number that the value of a property is, ``default`` if it is something else or too long."""
    is_number = text.isascii() and text.isdigit() and len(text) <= digits_max
    return int(text) if is_number else default


class HalfTable:
    """Pending half messages. Whoever uses it holds the lock of ``Transactions``."""

    def __init__(self) -> None:
        self._rows = _new_rows(_ROWS_FIRST)
        self._free = list(range(_ROWS_FIRST - 1, -1, -1))
        self._ids = [""] * _ROWS_FIRST
        self._keys = [""] * _ROWS_FIRST
        self._last: dict[str, int] = {}  # by transaction id; the row that was added last
        self._known: dict[str, _KnownKeys] = {}  # by transaction id; of those that were asked for
        self._dues: list[int] = []  # a heap
        self._moved_ms = 0  # what is added to the times in rows and heap
        self._topics: list[str] = []
        self._topic_numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids) - len(self._free)

    def __contains__(self, transaction_id: str) -> bool:
        return transaction_id in self._last

    def add(self, half: Half) -> None:
        """Take one in."""
        row, columns = self._placed(half)
        self._rows[row] = columns
        self._note_due(row, columns[_DUE_MS])

    def add_all(self, halves: Sequence[Half]) -> None:
        """Take many in, in order."""
        if halves:
            rows, columns = zip(*map(self._placed, halves), strict=True)
            self._rows[list(rows)] = np.array(columns, np.int64)
            self._dues += [
                each[_DUE_MS] << _ROW_BITS | row for row, each in zip(rows, columns, strict=True)
            ]
            heapq.heapify(self._dues)

    def _placed(self, half: Half) -> tuple[int, tuple[int, ...]]:
        """Give a half a row; return it and what its columns are to be."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._ids[row], self._keys[row] = half.transaction_id, half.unique_key
        before = self._last.get(half.transaction_id, _NO_ROW)
        self._last[half.transaction_id] = row
        known = self._known.get(half.transaction_id)
        if known is not None:
            known.add(half.unique_key, row, half.size)
        return row, (
            half.queue_offset, half.commit_offset, half.due_ms - self._moved_ms, half.check_count,
            half.born_ms, self._topic_number(half.topic), half.queue_id, half.size, half.body_crc,
            before,
        )  # fmt: skip

    def of(self, transaction_id: str) -> list[Half]:
        """Return the halves of a transaction in the order of their queue offsets; none if it is not pending."""
        halves = [self._half(row) for row in self._rows_of(transaction_id)]
        return sorted(halves, key=lambda half: half.queue_offset)

    def find(self, transaction_id: str, unique_key: str) -> tuple[int, int] | None:
        """Return queue offset and body CRC of a transaction's half with a unique key; None if it has none."""
        known = self._known_keys(transaction_id)
        row = None if known is None else known.rows.get(unique_key)
        if row is None:
            return None
        queue_offset, body_crc = self._rows[row, (_QUEUE_OFFSET, _BODY_CRC)].tolist()
        return queue_offset, body_crc

    def size_of(self, transaction_id: str) -> int:
        """Return how many bytes the records of a transaction have; 0 if it is not pending."""
        known = self._known_keys(transaction_id)
        return 0 if known is None else known.size

    def last_key(self, transaction_id: str) -> str:
        """Return the unique key of the half that was added last to a pending transaction."""
        return self._keys[self._last[transaction_id]]

    def _known_keys(self, transaction_id: str) -> _KnownKeys | None:
        """Return the keys of a pending transaction; they are gathered once and then kept."""
        known = self._known.get(transaction_id)
        if known is None and transaction_id in self._last:
            known = self._known[transaction_id] = _KnownKeys()
            for row in self._rows_of(transaction_id):
                known.add(self._keys[row], row, int(self._rows[row, _SIZE]))
        return known

    def remove(self, transaction_id: str) -> None:
        """Forget a transaction."""
        for row in list(self._rows_of(transaction_id)):
            self._rows[row] = _NEVER
            self._ids[row] = self._keys[row] = ""
            self._free.append(row)
        self._last.pop(transaction_id, None)
        self._known.pop(transaction_id, None)

    def postpone(self, transaction_ids: Sequence[str], due_ms: int) -> None:
        """Set when transactions are looked at next."""
        for transaction_id in transaction_ids:
            for row in self._rows_of(transaction_id):
                self._rows[row, _DUE_MS] = due_ms - self._moved_ms
                self._note_due(row, due_ms - self._moved_ms)

    def uncount(self, transaction_id: str) -> None:
        """Take one check off the count of each half of a transaction; the records keep it."""
        for row in self._rows_of(transaction_id):
            self._rows[row, _CHECK_COUNT] -= 1

    def move_dues(self, by_ms: int) -> None:
        """Move all times at which producers are asked."""
        self._moved_ms += by_ms

    def due(self, now_ms: int, count_max: int) -> list[str]:
        """Return the ids of transactions of which a half is due, the one stored first at the front.

        Of more than ``count_max`` halves, those that were due first. They are due until they are postponed or removed.
        """
        found: dict[int, int] = {}
        by_ms = now_ms - self._moved_ms
        while self._dues and len(found) < count_max and self._dues[0] >> _ROW_BITS <= by_ms:
            entry = heapq.heappop(self._dues)
            if self._counts(entry):
                found[entry & _ROW_MASK] = entry
        for entry in found.values():
            heapq.heappush(self._dues, entry)
        rows = sorted(found, key=lambda row: int(self._rows[row, _QUEUE_OFFSET]))
        return list(dict.fromkeys(self._ids[row] for row in rows))

    def next_due_ms(self) -> int | None:
        """Return when the next half is due; None if there is none."""
        while self._dues and not self._counts(self._dues[0]):
            heapq.heappop(self._dues)
        return (self._dues[0] >> _ROW_BITS) + self._moved_ms if self._dues else None

    def _note_due(self, row: int, due_ms: int) -> None:
        if len(self._dues) > 2 * len(self) + _ROWS_FIRST:
            self._dues = [entry for entry in set(self._dues) if self._counts(entry)]
            heapq.heapify(self._dues)
        heapq.heappush(self._dues, due_ms << _ROW_BITS | row)

    def _counts(self, entry: int) -> bool:
        return int(self._rows[entry & _ROW_MASK, _DUE_MS]) == entry >> _ROW_BITS

    def first_queue_offset(self) -> int | None:
        """Return the lowest queue offset of a pending half; None if there is none."""
        return int(self._rows[:, _QUEUE_OFFSET].min()) if len(self) else None

    def first_commit_offset(self) -> int | None:
        """Return the lowest commit offset of a pending half, None if there is none; from any thread."""
        first = int(self._rows[:, _COMMIT_OFFSET].min())
        return None if first == _NEVER else first

    def first_born_ms(self) -> int | None:
        """Return when the oldest pending half was stored, None if there is none; from any thread."""
        first = int(self._rows[:, _BORN_MS].min())
        return None if first == _NEVER else first

    def topic_counts(self) -> dict[str, int]:
        """Return how many halves are pending by topic; from any thread, of about one moment."""
        topics = list(self._topics)
        numbers = self._rows[:, _TOPIC]
        counts = np.bincount(numbers[numbers < len(topics)], minlength=len(topics)).tolist()
        return {topic: count for topic, count in zip(topics, counts, strict=True) if count}

    def ids(self) -> list[str]:
        """Return the ids of all pending transactions, the one stored first at the front."""
        rows = np.argsort(self._rows[:, _QUEUE_OFFSET], kind="stable")[: len(self)]
        return list(dict.fromkeys(self._ids[row] for row in rows.tolist()))

    def transaction_count(self) -> int:
        """Return how many transactions are pending."""
        return len(self._last)

    def counts_of(self, topic: str, queue_ids: range, min_commit_offset: int) -> dict[int, int]:
        """Return how many halves from a commit offset on are for each of some queues of a topic, those without any left out."""
        number = self._topic_numbers.get(topic)
        if number is None:
            return {}
        chosen = self._rows[:, _TOPIC] == number
        chosen &= self._rows[:, _COMMIT_OFFSET] >= min_commit_offset
        queues = self._rows[chosen, _QUEUE_ID]
        queues = queues[(queues >= queue_ids.start) & (queues < queue_ids.stop)]
        found, counts = np.unique(queues, return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))

    def _rows_of(self, transaction_id: str) -> Iterator[int]:
        row = self._last.get(transaction_id, _NO_ROW)
        while row != _NO_ROW:
            yield row
            row = int(self._rows[row, _NEXT])

    def _half(self, row: int) -> Half:
        (
            queue_offset, commit_offset, due_ms, check_count, born_ms, topic, queue_id, size,
            body_crc, _,
        ) = self._rows[row].tolist()  # fmt: skip
        return Half(
            transaction_id=self._ids[row],
            unique_key=self._keys[row],
            topic=self._topics[topic],
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_offset=commit_offset,
            size=size,
            born_ms=born_ms,
            due_ms=due_ms + self._moved_ms,
            check_count=check_count,
            body_crc=body_crc,
        )

    def _topic_number(self, topic: str) -> int:
        number = self._topic_numbers.get(topic)
        if number is None:
            number = self._topic_numbers[topic] = len(self._topics)
            self._topics.append(topic)
        return number

    def _grow(self) -> None:
        count = len(self._rows)
        rows = _new_rows(2 * count)
        rows[:count] = self._rows
        self._rows = rows
        self._ids += [""] * count
        self._keys += [""] * count
        self._free = list(range(2 * count - 1, count - 1, -1))


def _new_rows(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.full((count, _COLUMN_COUNT), _NEVER, np.int64, order="F")
