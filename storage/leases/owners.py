"""Owners of leases: clients that renew all of theirs at once, by one time each."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

NO_OWNER = -1


class Owners:
    """Numbers of clients, and until when each has renewed. Safe to use from several threads.

    ``until`` has a time in Unix ms for each number; it is replaced when it grows. A number is not given
    to another client while the process lives.
    """

    def __init__(self) -> None:
        self.until: npt.NDArray[np.int64] = np.zeros(16, np.int64)
        self._guard = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._lease_ms: dict[int, int] = {}
        self._next = 0
        self._taking: set[int] = set()  # asked for since the last ``forget``

    def number_of(self, client_id: str) -> tuple[int, bool]:
        """Return a client's number, and whether it is a new one."""
        with self._guard:
            number = self._numbers.get(client_id)
            is_new = number is None
            if number is None:
                number = self._next
                self._know(client_id, number)
            self._taking.add(number)
            return number, is_new

    def _know(self, client_id: str, number: int) -> None:
        if number >= len(self.until):
            grown = np.zeros(max(number + 1, 2 * len(self.until)), np.int64)
            grown[: len(self.until)] = self.until
            self.until = grown
        self._numbers[client_id] = number
        self._next = max(self._next, number + 1)

    def client_of(self, number: int) -> str:
        """Return the client that has a number, "" if none has."""
        with self._guard:
            return next((name for name, each in self._numbers.items() if each == number), "")

    def restore(self, client_id: str, number: int) -> None:
        """Take in a client as the journal names it."""
        with self._guard:
            self._know(client_id, number)

    def skip(self, number: int) -> None:
        """Give no client a number that rows still name."""
        with self._guard:
            self._next = max(self._next, number + 1)

    def set_until(self, number: int, until_ms: int) -> None:
        """Set until when an owner has renewed; of an unknown number nothing."""
        with self._guard:
            if 0 <= number < len(self.until):
                self.until[number] = until_ms

    def limit(self, until_ms: int) -> None:
        """Let no owner have renewed for longer than until a time."""
        with self._guard:
            np.minimum(self.until, until_ms, out=self.until)

    def note_lease(self, number: int, lease_ms: int) -> None:
        """Remember for how long an owner takes its leases."""
        self._lease_ms[number] = lease_ms

    def lease_ms(self, number: int, default_ms: int) -> int:
        """Return for how long an owner takes its leases."""
        return self._lease_ms.get(number, default_ms)

    def known(self, client_ids: Iterable[str]) -> list[int]:
        """Return the numbers of those clients that have one."""
        found = (self._numbers.get(client_id) for client_id in client_ids)
        return [number for number in found if number is not None]

    def lasting(self, now_ms: int) -> list[tuple[int, str, int]]:
        """Return number, client id and time of those whose leases may go on."""
        with self._guard:
            return [
                (number, client_id, int(self.until[number]))
                for client_id, number in self._numbers.items()
                if self.until[number] > now_ms
            ]

    def forget(self, kept: set[int]) -> None:
        """Forget clients but those whose numbers are kept, or were asked for since the last time.

        Whoever asked for a number is about to take leases with it, which nobody has seen yet.
        """
        with self._guard:
            kept, self._taking = kept | self._taking, set()
            self._numbers = {k: v for k, v in self._numbers.items() if v in kept}
            self._lease_ms = {k: v for k, v in self._lease_ms.items() if k in kept}
