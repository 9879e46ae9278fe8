"""What is noted of pending transactions between checks: who waits to be asked about, is too old, is in trouble."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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
