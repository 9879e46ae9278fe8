"""Attempts to sign in: so many by an address, and so many for a name, in some minutes."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from storage.clock import Clock

WINDOW_S: Final = 300.0
BY_NAME_HERE_MAX: Final = 10  # for a name by one address
BY_ADDRESS_MAX: Final = 30
BY_NAME_MAX: Final = 200  # for a name by all addresses: one address alone keeps nobody out
KNOWN_MAX: Final = 10_000  # addresses and names; beyond, the one silent for longest is forgotten
Key = tuple[str, str, str]


class SignInAttempts:
    """Attempts of the last minutes that did not succeed, those under way among them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken: OrderedDict[Key, deque[float]] = OrderedDict()

    def take(self, address: str, name: str) -> float:
        """Count an attempt and return 0, or return how many seconds it has to wait."""
        now = self._clock.monotonic()
        self._forget(now)
        wait_s = 0.0
        for key, most in _limits(address, name):
            taken = self._taken.get(key, deque())
            while taken and taken[0] <= now - WINDOW_S:
                taken.popleft()
            if len(taken) >= most:
                wait_s = max(wait_s, taken[0] + WINDOW_S - now)
        if wait_s <= 0:
            for key, _ in _limits(address, name):
                self._taken.setdefault(key, deque()).append(now)
                self._taken.move_to_end(key)
        return wait_s

    def give_back(self, address: str, name: str) -> None:
        """Uncount an attempt that proved to be nobody's guess."""
        for key, _ in _limits(address, name):
            taken = self._taken.get(key)
            if taken:
                taken.pop()

    def _forget(self, now: float) -> None:
        """Drop what lies before the window; the keys stand in the order of their last attempts."""
        while self._taken:
            key, taken = next(iter(self._taken.items()))
            if taken and taken[-1] > now - WINDOW_S and len(self._taken) <= KNOWN_MAX:
                break
            del self._taken[key]


def _limits(address: str, name: str) -> tuple[tuple[Key, int], ...]:
    return (
        (("address", address, ""), BY_ADDRESS_MAX),
        (("both", address, name), BY_NAME_HERE_MAX),
        (("name", "", name), BY_NAME_MAX),
    )
