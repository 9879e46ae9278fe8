"""Attempts to sign in: so many by an address, and so many for a name, in some minutes."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from storage.clock import Clock

WINDOW_S: Final = 300.0
BY_NAME_MAX: Final = 10
BY_ADDRESS_MAX: Final = 30
KNOWN_MAX: Final = 10_000  # addresses and names; beyond, the one silent for longest is forgotten


class SignInAttempts:
    """Attempts that failed lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def wait_s(self, address: str, name: str) -> float:
        """Return how long until another attempt is taken; 0: at once."""
        now = self._clock.monotonic()
        waits = [0.0]
        for key, most in ((("address", address), BY_ADDRESS_MAX), (("name", name), BY_NAME_MAX)):
            failed = self._failed.get(key, deque())
            while failed and failed[0] <= now - WINDOW_S:
                failed.popleft()
            if len(failed) >= most:
                waits.append(failed[0] + WINDOW_S - now)
        return max(waits)

    def failed(self, address: str, name: str) -> None:
        """Count an attempt."""
        for key in (("address", address), ("name", name)):
            self._failed.setdefault(key, deque()).append(self._clock.monotonic())
            self._failed.move_to_end(key)
        while len(self._failed) > KNOWN_MAX:
            self._failed.popitem(last=False)
