"""Outcomes of leased messages, until they are sent; threads may share one."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

from penstock.calls.leases import Action

HANDLES_MAX: Final = 1_024
"""Most handles of one call."""


class Settlement(NamedTuple):
    """An action on messages; ``delay_ms`` is for messages that are given back, None: the group's backoff."""

    action: Action
    delay_ms: int | None = None


class SettledHandles(NamedTuple):
    """Handles of messages that share an outcome, one after the other."""

    handles: bytes
    message_count: int


class Outcomes:
    """Handles that wait to be sent, each with its action; ``wake`` is called when some come.

    It also counts the unsettled messages by the client id that they were leased for. ``added_count`` messages
    are settled, and of these the first ``sent_count`` are sent; the sender counts them.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._waiting: deque[tuple[Settlement, SettledHandles]] = deque()
        self._unsettled: Counter[str] = Counter()
        self.added_count = 0
        self.sent_count = 0
        self._guard = Lock()
        self._wake = wake

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def received(self, client_id: str, count: int) -> None:
        """Note that so many messages were leased for a client id."""
        with self._guard:
            self._unsettled[client_id] += count

    def unsettled(self, client_id: str) -> int:
        """Return how many messages of a client id are not settled."""
        return self._unsettled[client_id]

    def acknowledge(self, client_id: str, handles: bytes, count: int) -> None:
        """Note that messages are done."""
        self._add(client_id, _ACKNOWLEDGE, SettledHandles(handles, count))

    def give_back(self, client_id: str, handles: bytes, count: int, delay_ms: int | None) -> None:
        """Note that messages come again after the delay, or by the group's backoff."""
        self._add(client_id, Settlement("change", delay_ms), SettledHandles(handles, count))

    def dead_letter(self, client_id: str, handles: bytes, count: int) -> None:
        """Note that messages become dead letters."""
        self._add(client_id, _DEAD_LETTER, SettledHandles(handles, count))

    def take(self) -> dict[Settlement, SettledHandles]:
        """Return up to HANDLES_MAX handles by their action, and forget them."""
        taken: dict[Settlement, list[bytes]] = defaultdict(list)
        counts: Counter[Settlement] = Counter()
        room = HANDLES_MAX
        while self._waiting and self._waiting[0][1].message_count <= room:
            settlement, (handles, count) = self._waiting.popleft()
            taken[settlement].append(handles)
            counts[settlement] += count
            room -= count
        return {
            settlement: SettledHandles(b"".join(handles), counts[settlement])
            for settlement, handles in taken.items()
        }

    def put_back(self, settlement: Settlement, settled: SettledHandles) -> None:
        """Put back handles that were not sent, to be sent again."""
        self._waiting.appendleft((settlement, settled))

    def _add(self, client_id: str, settlement: Settlement, settled: SettledHandles) -> None:
        with self._guard:
            self._waiting.append((settlement, settled))  # first: an interrupt may lose the counts
            self._unsettled[client_id] -= settled.message_count
            self.added_count += settled.message_count
        self._wake()


_ACKNOWLEDGE: Final = Settlement("acknowledge")
_DEAD_LETTER: Final = Settlement("dead-letter")
