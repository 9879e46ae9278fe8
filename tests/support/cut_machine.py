"""A machine with one store on it, that is killed, cut off and started again by hand."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config
from power_cuts import PowerCuts, bury_the_dead
from stepped_engine import StepClock, without_threads

from storage.checkpoint import positions
from storage.writer import StoreWriter


class Machine:
    """``disk`` is the file system of the present start; each part of the writer works when told."""

    def __init__(self, root: Path, patches: pytest.MonkeyPatch, seed: int = 1) -> None:
        self._root = root
        self._starts = 0
        self._boots = 0
        self.clock = StepClock()
        without_threads(patches)
        patches.setattr(positions, "system_boot_id", lambda: b"boot %11d" % self._boots)
        self.disk = PowerCuts(root / "0", random.Random(seed), memory=root / "0" / "shm")
        self.disk.new_root = self._next_root

    def _next_root(self) -> Path:
        self._starts += 1
        return self._root / str(self._starts)

    @property
    def store(self) -> Path:
        return self.disk.root / "store"

    def open(self, **config: Any) -> StoreWriter:
        bury_the_dead()
        assert self.disk.memory is not None
        self.disk.memory.mkdir(exist_ok=True)
        options = {"transient_pool_directory": str(self.disk.memory), "warm_ahead_bytes": 0}
        return StoreWriter.open(
            self.store, small_config(**options, **config), filesystem=self.disk, clock=self.clock
        )

    def kill(self) -> None:
        """End the process, unless it has ended."""
        self._go_on(self.disk.stop(kills=True))

    def cut(self, how: str = "none") -> None:
        """Cut the power, unless it was; ``how`` much of what was not synced stays is none or all."""
        self._go_on(self.disk.stop(kills=False, how=how))
        self._boots += 1

    def _go_on(self, disk: PowerCuts) -> None:
        shutil.rmtree(self.disk.root, ignore_errors=True)
        self.disk = disk
