"""Pending half messages, found by transaction and by time; notes on their transactions, and how they end.

A transaction is all pending halves with one transaction id. A broker's clients have one half in each.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.engine.repeats import body_crcs
from storage.errors import InvalidBatch, InvalidMessage, TransactionExists
from storage.kernels.columns import SIZE

if TYPE_CHECKING:
    from storage.log.batches import Prepared
    from storage.transactions.values import TransactionState

REMEMBERED_MAX: Final = 65_536
_DUES_MIN: Final = 1_024
HALF_GROWTH_BYTES: Final = (
    256  # about what a half is longer than its message, and its part of an op record
)


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

    def not_ahead(self, now_ms: int) -> Half:
        """Return it due as long after now as after its birth, if it is from the future: the clock was set back since."""
        ahead_ms = self.born_ms - now_ms
        return self._replace(due_ms=self.due_ms - ahead_ms) if ahead_ms > 0 else self


class _PendingHalves:
    """Queue offsets of its halves, by unique key, and the bytes of all records."""

    __slots__ = ("places", "size")

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.size = 0


class HalfTable:
    """Pending half messages. Whoever uses it holds the lock of ``Transactions``.

    ``first`` is the one with the lowest queue offset and commit offset, None if there is none.
    """

    def __init__(self) -> None:
        self.first: Half | None = None
        self._halves: dict[int, Half] = {}  # by queue offset
        self._transactions: dict[str, _PendingHalves] = {}
        self._places: deque[int] = deque()  # ascending; some are of halves that ended
        self._dues: list[
            tuple[int, int]
        ] = []  # a heap of due_ms and queue offset; some hold no more
        self._topic_counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._halves)

    def __contains__(self, transaction_id: str) -> bool:
        return transaction_id in self._transactions

    def add(self, half: Half) -> None:
        """Take in one that was stored after all others."""
        transaction = self._transactions.setdefault(half.transaction_id, _PendingHalves())
        transaction.places[half.unique_key] = half.queue_offset
        transaction.size += half.size
        self._places.append(half.queue_offset)
        self._topic_counts[half.topic] += 1
        self._set(half)
        self.first = self.first or half

    def of(self, transaction_id: str) -> list[Half]:
        """Return the halves of a transaction in the order of their queue offsets; none if it is not pending."""
        transaction = self._transactions.get(transaction_id)
        return (
            [] if transaction is None else [self._halves[at] for at in transaction.places.values()]
        )

    def find(self, transaction_id: str, unique_key: str) -> Half | None:
        """Return a transaction's half with a unique key; None if it has none."""
        transaction = self._transactions.get(transaction_id)
        place = None if transaction is None else transaction.places.get(unique_key)
        return None if place is None else self._halves[place]

    def size_of(self, transaction_id: str) -> int:
        """Return how many bytes the records of a transaction have; 0 if it is not pending."""
        transaction = self._transactions.get(transaction_id)
        return 0 if transaction is None else transaction.size

    def last_key(self, transaction_id: str) -> str:
        """Return the unique key of the half that was added last to a pending transaction."""
        return next(reversed(self._transactions[transaction_id].places))

    def remove(self, transaction_id: str) -> None:
        """Forget a transaction."""
        transaction = self._transactions.pop(transaction_id, None)
        if transaction is None:
            return
        for place in transaction.places.values():
            self._topic_counts[self._halves.pop(place).topic] -= 1
        while self._places and self._places[0] not in self._halves:
            self._places.popleft()
        self.first = self._halves[self._places[0]] if self._places else None

    def postpone(self, transaction_ids: Iterable[str], due_ms: int) -> None:
        """Set when transactions are looked at next."""
        for transaction_id in transaction_ids:
            for half in self.of(transaction_id):
                self._set(half._replace(due_ms=due_ms))

    def uncount(self, transaction_id: str) -> None:
        """Take one check off the count of each half of a transaction; the records keep it."""
        for half in self.of(transaction_id):
            self._halves[half.queue_offset] = half._replace(check_count=half.check_count - 1)

    def move_dues(self, by_ms: int) -> None:
        """Move all times at which producers are asked."""
        self._dues = []
        for half in list(self._halves.values()):
            self._set(half._replace(due_ms=half.due_ms + by_ms))

    def due(self, now_ms: int, count_max: int) -> list[str]:
        """Return the ids of transactions of which a half is due, the one stored first at the front.

        Of more than ``count_max`` halves, those that were due first. They are due until they are postponed or removed.
        """
        found: dict[int, int] = {}
        while self._dues and len(found) < count_max and self._dues[0][0] <= now_ms:
            due_ms, place = heapq.heappop(self._dues)
            if self._is_due_at(due_ms, place):
                found[place] = due_ms
        for place, due_ms in found.items():
            heapq.heappush(self._dues, (due_ms, place))
        return list(dict.fromkeys(self._halves[place].transaction_id for place in sorted(found)))

    def _set(self, half: Half) -> None:
        """Have a half, and when it is due."""
        self._halves[half.queue_offset] = half
        if len(self._dues) > 2 * len(self) + _DUES_MIN:
            self._dues = [entry for entry in set(self._dues) if self._is_due_at(*entry)]
            heapq.heapify(self._dues)
        heapq.heappush(self._dues, (half.due_ms, half.queue_offset))

    def _is_due_at(self, due_ms: int, place: int) -> bool:
        half = self._halves.get(place)
        return half is not None and half.due_ms == due_ms

    def first_born_ms(self) -> int | None:
        """Return when the oldest pending half was stored, None if there is none; from any thread."""
        return min((half.born_ms for half in list(self._halves.values())), default=None)

    def topic_counts(self) -> dict[str, int]:
        """Return how many halves are pending by topic; from any thread."""
        return {topic: count for topic, count in self._topic_counts.copy().items() if count}

    def ids(self) -> list[str]:
        """Return the ids of all pending transactions, the one stored first at the front."""
        found = [half.transaction_id for at in self._places if (half := self._halves.get(at))]
        return list(dict.fromkeys(found))

    def transaction_count(self) -> int:
        """Return how many transactions are pending."""
        return len(self._transactions)


class CheckNotes:
    """Notes by transaction id. Whoever uses them holds the lock of ``Transactions``, but for ``troubles``."""

    def __init__(self) -> None:
        self.late: dict[str, int] = {}  # too old; how often they were looked at since
        self.troubles: dict[str, str] = {}  # also of what was to be kept
        self._topics: dict[str, Sequence[str]] = {}  # of those that wait
        self._waiting: dict[str, set[str]] = {}  # by topic
        self._woken: list[set[str]] = []

    def __len__(self) -> int:
        return len(self._topics)

    def wait(self, transaction_id: str, topics: Iterable[str]) -> None:
        """Note that a transaction was due when there was nobody to ask."""
        self._no_longer_waits(transaction_id)
        found = self._topics[transaction_id] = tuple(dict.fromkeys(topics))
        for topic in found:
            self._waiting.setdefault(topic, set()).add(transaction_id)

    def wake(self, topics: Iterable[str]) -> None:
        """Have ``woken`` return those of topics that wait now."""
        found = [self._waiting.pop(topic) for topic in topics if topic in self._waiting]
        self._woken += found

    def woken(self, count_max: int) -> list[str]:
        """Take some that were woken; they wait no longer. Some may have ended."""
        found: list[str] = []
        while self._woken and len(found) < count_max:
            if not self._woken[-1]:
                self._woken.pop()
                continue
            transaction_id = self._woken[-1].pop()
            self._no_longer_waits(transaction_id)
            found.append(transaction_id)
        return found

    def forget(self, transaction_id: str) -> None:
        """Drop what is noted of a transaction that has ended."""
        self.late.pop(transaction_id, None)
        self.troubles.pop(transaction_id, None)
        self._no_longer_waits(transaction_id)

    def _no_longer_waits(self, transaction_id: str) -> None:
        for topic in self._topics.pop(transaction_id, ()):
            of_topic = self._waiting.get(topic, set())
            of_topic.discard(transaction_id)
            if not of_topic:
                self._waiting.pop(topic, None)


class RememberedEnds:
    """State and number of messages of what ended last, by transaction id: who asks again gets the first answer."""

    def __init__(self) -> None:
        self._ends: OrderedDict[str, tuple[TransactionState, int]] = OrderedDict()

    def get(self, transaction_id: str) -> tuple[TransactionState, int] | None:
        """Return how a transaction ended; None if that is not known."""
        return self._ends.get(transaction_id)

    def add(self, transaction_id: str, state: TransactionState, message_count: int) -> None:
        """Remember how a transaction ended; the one that ended first is forgotten first."""
        self._ends[transaction_id] = state, message_count
        self._ends.move_to_end(transaction_id)
        if len(self._ends) > REMEMBERED_MAX:
            self._ends.popitem(last=False)


class DecidedEnds:
    """Commits and give-ups of which some copies are stored and their op records are not: the checks complete them.

    By transaction id, the commit offsets of halves that have a copy. Whoever uses it holds the lock of
    ``Transactions``.
    """

    def __init__(self) -> None:
        self.copied: dict[str, set[int]] = {}
        self.given_up: dict[str, set[int]] = {}

    def __contains__(self, transaction_id: str) -> bool:
        return transaction_id in self.copied or transaction_id in self.given_up

    def first_commit_offset(self) -> int | None:
        """Return the lowest commit offset of a half that has a copy; None if there is none."""
        found = *self.copied.values(), *self.given_up.values()
        return min(map(min, found), default=None)

    def forget(self, transaction_id: str) -> None:
        """Drop one that is complete; others are no error."""
        self.copied.pop(transaction_id, None)
        self.given_up.pop(transaction_id, None)


def known_offsets(
    table: HalfTable, ids: Sequence[str], keys: Sequence[str], sent: Prepared, key_prefix: str,
    bytes_max: int,
) -> list[int | None]:  # fmt: skip
    """Return for each message of a batch the queue offset of its half, None if it is not stored.

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
        elif found.body_crc != int.from_bytes(crcs[row]):
            raise InvalidBatch(row, "another message with its UNIQ_KEY is part of the transaction")
        known.append(None if found is None else found.queue_offset)
    if max(sizes.values()) > bytes_max:
        raise InvalidMessage("records", f"a transaction has at most {bytes_max} bytes")
    return known
