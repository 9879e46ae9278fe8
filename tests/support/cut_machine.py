"""A machine with one store on it, that is killed, cut off and started again by hand."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_store import small_config

from storage.config import StoreConfig
from storage.testing import (
    ProcessStopped,
    SimulatedDisk,
    SteppedClock,
    SteppedWorkers,
    free_stopped_stores,
)
from storage.writer import StoreWriter


class Machine:
    """``disk`` is the file system of the present start; ``workers`` are those of its writer."""

    def __init__(self, root: Path, seed: int = 1) -> None:
        self._root = root
        self.lives = 0
        self.clock = SteppedClock()
        self.workers = SteppedWorkers()
        self.dice = random.Random(seed)
        self.disk = SimulatedDisk(root / "0", self.dice, memory=root / "0" / "shm")
        self.disk.new_root = self._next_root

    def _next_root(self) -> Path:
        self.lives += 1
        return self._root / str(self.lives)

    @property
    def directory(self) -> Path:
        return self.disk.root / "store"

    def start(self, **config: Any) -> StoreConfig:
        """Return the configuration of the next start, whose workers there are from here on."""
        free_stopped_stores()
        assert self.disk.memory is not None
        self.disk.memory.mkdir(exist_ok=True)
        self.workers = SteppedWorkers()
        return small_config(
            transient_pool_directory=str(self.disk.memory), warm_ahead_bytes=0, **config
        )

    def open(self, **config: Any) -> StoreWriter:
        return StoreWriter.open(
            self.directory, self.start(**config),
            filesystem=self.disk, clock=self.clock, workers=self.workers,
        )  # fmt: skip

    def kill(self) -> None:
        """End the process, unless it has ended."""
        self._go_on(self.disk.kill())

    def cut(self, how: str = "none") -> None:
        """Cut the power, unless it was; ``how`` much of what was not synced stays is none or all."""
        self._go_on(self.disk.cut_power(how))

    def stop_at(
        self, step: int, work: Callable[[StoreWriter], None], *, kills: bool, dice: random.Random
    ) -> bool:
        """Have ``work`` with a new writer stopped at a step of the disk; return whether it came so far.

        The machine is down then, by a kill or else by a power cut.
        """
        writer = self.open(flush_mode="sync")
        self.disk.stop_after(step, kills=kills)
        was_stopped = False
        try:
            work(writer)
        except ProcessStopped:
            was_stopped = True
        if kills and was_stopped:
            self.kill()
        else:
            self.cut(dice.choice(("", "none", "all")))
        if self.disk.successor is not None:
            self.cut("")
        self.kill()
        return was_stopped

    def _go_on(self, disk: SimulatedDisk) -> None:
        shutil.rmtree(self.disk.root, ignore_errors=True)
        self.disk = disk
