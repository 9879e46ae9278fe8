"""What a disk holds of files and directories beside what is in memory, and what a cut leaves."""

from __future__ import annotations

import os
import random
from typing import Final

import numpy as np
import numpy.typing as npt

SECTOR: Final = 512
SECTORS_OF_A_PAGE: Final = 8
PAGE: Final = SECTOR * SECTORS_OF_A_PAGE


class DiskFile:
    """A file, whatever names it has: ``durable`` is what the disk holds."""

    def __init__(self, descriptor: int, durable: bytes) -> None:
        self.descriptor = descriptor  # kept open, so that its number is not given to another
        self.durable = durable
        self.given_up: dict[int, bytes] = {}  # pages that count as clean since a sync failed

    def __del__(self) -> None:
        os.close(self.descriptor)

    def live(self) -> bytes:
        """Return what the page cache has."""
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def sync(self) -> None:
        """Have the disk hold what the page cache has, but for pages that count as written."""
        live = self.live()
        if not self.given_up:
            self.durable = live
            return
        synced = bytearray(live)
        for page, content in self.given_up.items():
            if live[page : page + PAGE] == content:
                old = self.durable[page : page + PAGE].ljust(len(content), b"\0")
                synced[page : page + PAGE] = old
            else:
                self.given_up = {p: c for p, c in self.given_up.items() if p != page}
        self.durable = bytes(synced)

    def fail_to_sync(self, dice: random.Random, how: str) -> None:
        """Write some of it, and take the rest for written from here on, as kernels do."""
        live = self.live()
        self.durable = mixed(self.durable, live, dice, how)
        self.given_up = {
            page: live[page : page + PAGE]
            for page in range(0, len(live), PAGE)
            if live[page : page + PAGE] != self.durable[page : page + PAGE]
        }

    def write_again(self, position: int, length: int) -> None:
        """Take pages that are written to for dirty again, whatever they hold."""
        for page in [page for page in self.given_up if position - PAGE < page < position + length]:
            del self.given_up[page]

    def write_back(self, dice: random.Random) -> None:
        """Write some of it to the disk, as a kernel does unasked."""
        if not self.given_up:
            self.durable = mixed(self.durable, self.live(), dice)


class DiskDirectory:
    """``names`` are those in the page cache, ``durable`` on the disk, ``changes`` lie between."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.changes: list[tuple[str, str, Node | None]] = []  # name gone, name there, its node

    def left(self, dice: random.Random, how: str) -> dict[str, Node]:
        """Return the names that a cut leaves."""
        kept = np.flatnonzero(survivors(len(self.changes), dice, how))
        names = dict(self.durable)
        for gone, there, node in [self.changes[at] for at in kept]:
            if gone:
                names.pop(gone, None)
            if node is not None:
                names[there] = node
        return names


Node = DiskFile | DiskDirectory


def survivors(count: int, dice: random.Random, how: str) -> npt.NDArray[np.bool_]:
    """Return which of so many writes have reached the disk."""
    every, some = np.ones(count, np.bool_), np.random.default_rng(dice.getrandbits(32))
    at = dice.randint(0, count)
    if how == "mixed":
        how = dice.choice(("none", "none", "all", "first", "last", "half", "few", "most"))
    if how in ("half", "few", "most"):
        return some.random(count) < {"half": 0.5, "few": 0.1, "most": 0.9}[how]
    return {
        "all": every,
        "none": ~every,
        "first": np.arange(count) < at,
        "last": np.arange(count) >= at,
    }[how]


def mixed(old: bytes, new: bytes, dice: random.Random, how: str = "mixed") -> bytes:
    """Return what a cut leaves of a file: of each sector, or each page, one of two versions."""
    if old == new:
        return new
    length = len(new)
    if how != "all" and len(old) < length:
        length = dice.choice((len(old), length, dice.randint(len(old), length)))
    size = max(len(old), len(new))
    before = np.frombuffer(old.ljust(size, b"\0"), np.uint8)
    after = np.frombuffer(new.ljust(size, b"\0"), np.uint8)
    changed = np.unique(np.flatnonzero(before != after) // SECTOR)
    units = changed // SECTORS_OF_A_PAGE if dice.random() < 0.5 else changed
    _, unit_of = np.unique(units, return_inverse=True)
    kept = survivors(int(unit_of.max(initial=-1)) + 1, dice, how)
    left = before.copy()
    for sector, unit in zip(changed.tolist(), unit_of.tolist(), strict=True):
        if kept[unit]:
            begin = sector * SECTOR
            left[begin : begin + SECTOR] = after[begin : begin + SECTOR]
    return left[:length].tobytes()
