"""Unique keys of messages that come without one."""

from __future__ import annotations

import itertools
import os
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from storage.format.hosts import encode_host
from storage.format.message_id import PROCESS_ID

if TYPE_CHECKING:
    from storage.clock import Clock

PORT_SIZE: Final = 4
_DIGITS: Final = "0123456789ABCDEF"
_AFTER_ADDRESS: Final = 24  # digits: process, discriminator, moment, counter


class UniqueKeys:
    """Makes unique keys in a client's shape: address, process, moment, counter."""

    def __init__(self, host: str, clock: Clock) -> None:
        address = encode_host(host)[:-PORT_SIZE]
        self.head = (address + PROCESS_ID.pack(os.getpid() & 0xFFFF)).hex().upper()
        self._discriminator = secrets.randbits(32)
        self._counter = itertools.count(secrets.randbits(16))
        self._clock = clock
        self._month = (0, 0)  # from, to: Unix milliseconds

    def make(self) -> str:
        """Return a key that no other call returns within the month."""
        discriminator, month_ms, counter = self.parts(self._clock.now_ms())
        return f"{self.head}{discriminator:08X}{month_ms:08X}{counter:04X}"

    def parts(self, now_ms: int) -> tuple[int, int, int]:
        """Return what follows ``head`` in the next key: discriminator, month_ms, counter."""
        month_ms = self._month
        if not month_ms[0] <= now_ms < month_ms[1]:
            moment = datetime.fromtimestamp(now_ms / 1000, UTC)
            begin = datetime(moment.year, moment.month, 1, tzinfo=UTC)
            year, month = divmod(moment.year * 12 + moment.month, 12)
            end = datetime(year, month + 1, 1, tzinfo=UTC)
            month_ms = int(begin.timestamp()) * 1000, int(end.timestamp()) * 1000
            self._month = month_ms
        counter = next(self._counter)
        # More than 65,536 in one millisecond run over into the discriminator.
        discriminator = self._discriminator + (counter >> 16) & 0xFFFF_FFFF
        return discriminator, now_ms - month_ms[0], counter & 0xFFFF


def is_cut_short(unique_key: str, store_host: bytes) -> bool:
    """Tell whether a key is the beginning of one that is made here.

    A key that a caller chose is not looked at, however short it is, unless it begins with the address of the store in
    hexadecimal digits and has no other characters.
    """
    head = store_host[:-PORT_SIZE].hex().upper()
    return (
        unique_key.startswith(head)
        and len(unique_key) < len(head) + _AFTER_ADDRESS
        and not unique_key.strip(_DIGITS)
    )
