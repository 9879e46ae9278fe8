"""Owners of leases: clients that renew all of theirs at once, by one time each, however many they have."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from storage.leases.ranges import NO_OWNER, State


class Owners:
    """Used under the lock of the leases. A client has one number for as long as the process lives, and nobody else."""

    def __init__(self, renewed_max_ms: int) -> None:
        self._renewed_max_ms = renewed_max_ms
        self._numbers: dict[str, int] = {}
        self._until_ms: dict[int, int] = {}  # a lease that was taken before lasts until then
        self._lease_ms: dict[int, int] = {}
        self._next = 0

    def number_of(self, client_id: str, lease_ms: int, now_ms: int) -> tuple[int, bool]:
        """Return the number of a client that takes leases for so long, and whether it is a new one."""
        number = self._numbers.get(client_id)
        is_new = number is None
        if number is None:
            number = self._next
            self.restore(number, client_id, now_ms)
        self._lease_ms[number] = lease_ms
        return number, is_new

    def restore(self, number: int, client_id: str, until_ms: int) -> None:
        """Take in a client as the journal names it."""
        self._numbers[client_id] = number
        self._until_ms[number] = until_ms
        self.skip(number)

    def skip(self, number: int) -> None:
        """Give no client a number that leases still name."""
        self._next = max(self._next, number + 1)

    def client_of(self, number: int) -> str:
        """Return the client that has a number, "" if none has."""
        return next((name for name, each in self._numbers.items() if each == number), "")

    def known(self, client_ids: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those clients that have one."""
        return {each: self._numbers[each] for each in client_ids if each in self._numbers}

    def renew(self, number: int, now_ms: int, default_ms: int) -> None:
        """Let a client's leases last from now on for as long as it takes them."""
        self._until_ms[number] = now_ms + self._lease_ms.get(number, default_ms)

    def end(self, number: int) -> None:
        """Renew the leases of a client no more."""
        self._until_ms[number] = 0

    def limit(self, until_ms: int) -> None:
        """Let no client have renewed for longer than until a time."""
        self._until_ms = {each: min(time, until_ms) for each, time in self._until_ms.items()}

    def end_of(self, state: State) -> int:
        """Return when a lease ends, with what its owner has renewed."""
        if state.owner == NO_OWNER:
            return state.visible_at
        renewed_ms = min(self._until_ms.get(state.owner, 0), state.leased_at + self._renewed_max_ms)
        return max(state.visible_at, renewed_ms)

    def is_used_up(self, state: State) -> bool:
        """Return whether a lease was renewed for as long as one may be."""
        is_owned = state.owner != NO_OWNER
        return is_owned and self.end_of(state) >= state.leased_at + self._renewed_max_ms

    def names(self, client_ids: Iterable[str] | None = None) -> list[tuple[int, str, int]]:
        """Return number, client id and time of some clients, or all, as the journal names them."""
        chosen = self._numbers if client_ids is None else self.known(client_ids)
        return [(number, client_id, self._until_ms[number]) for client_id, number in chosen.items()]

    def keep(self, numbers: Collection[int], now_ms: int) -> None:
        """Forget clients that have not renewed of late, but for those whose numbers are given."""
        kept = {each for each, time in self._until_ms.items() if time > now_ms or each in numbers}
        self._numbers = {name: each for name, each in self._numbers.items() if each in kept}
        self._until_ms = {each: time for each, time in self._until_ms.items() if each in kept}
        self._lease_ms = {each: time for each, time in self._lease_ms.items() if each in kept}
