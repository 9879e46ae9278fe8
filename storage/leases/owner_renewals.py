"""Renewals of clients' leases, journalled: one time for each client, however many leases it has."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from storage.config import LeaseConfig
from storage.format.leases.journal import OWNED, encode_blocks
from storage.journal.journal import Journal
from storage.leases.leased_queue import Events
from storage.leases.owners import Owners
from storage.leases.queues import Place

PART: Final = "owners"  # of what is journalled


class OwnerRenewals:
    """Safe to use from several threads."""

    def __init__(self, journal: Journal, config: LeaseConfig) -> None:
        self.owners = Owners()
        self.guard = threading.Lock()  # of what is journalled of owners
        self._journal = journal
        self._config = config

    def number_of(self, client_id: str, lease_ms: int, now_ms: int) -> int:
        """Return a client's number; it takes leases for so long."""
        number, is_new = self.owners.number_of(client_id)
        self.owners.note_lease(number, lease_ms)
        if is_new:
            with self.guard:
                self.owners.set_until(number, now_ms)
                names = {"owners": [[number, client_id]]}
                self._journal.append(PART, encode_blocks(names=names))
        return number

    def renew(self, client_ids: Iterable[str], now_ms: int) -> int:
        """Let leases of clients last from now on as long as they were taken for; return how many are known."""
        numbers = self.owners.known(client_ids)
        events = Events(len(numbers) + 1)
        with self.guard:
            for number in numbers:
                until_ms = now_ms + self.owners.lease_ms(number, self._config.lease_ms)
                self.owners.set_until(number, until_ms)
                add_owned(events, number, until_ms)
            if events.count:
                self._journal.append(PART, encode_blocks(events.encoded()))
        return len(numbers)

    def end(self, number: int) -> None:
        """Renew the leases of a client no more."""
        events = Events(1)
        with self.guard:
            self.owners.set_until(number, 0)
            add_owned(events, number, 0)
            self._journal.append(PART, encode_blocks(events.encoded()))


def add_owned(events: Events, number: int, until_ms: int) -> None:
    """Add until when an owner has renewed."""
    events.add(OWNED, 0, number, place=Place(0, until_ms))
