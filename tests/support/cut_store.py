"""A whole store whose machine goes down again and again, beside a model of what must survive."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

from cut_machine import Machine
from cut_session import Model, Session

from storage.errors import StoreError
from storage.testing import ProcessStopped


class CutStore(Machine):
    """Sessions of a store, each ended by a cut, a kill, or first a close, all by one seed."""

    def __init__(self, root: Path, seed: int, **options: Any) -> None:
        super().__init__(root, seed)
        dice = self.dice
        self.model = Model()
        self.sync = options.pop("flush_mode", dice.choice(("sync", "async"))) == "sync"
        self.pool = options.pop("transient_pool", dice.random() < 0.3)
        self.deleted_count = 0  # how often the log was found to begin later
        self.min_offset = 0
        self.retains = options.pop("retains", False)
        if self.retains:
            self.clock.advance(max(time.time() - self.clock.now_ms() / 1000, 0) + 1_800)
        self.faulty = options.pop("faulty", dice.random() < 0.4)
        self.log_file_size = dice.choice((4, 16)) * 4096
        self.queue_file_size = dice.choice((40, 1000)) * 20
        self.acknowledged = self.flushed = 0
        self.traces: list[list[str]] = []
        self.log: list[str] = []
        self.cuts = 0
        self.closed = False
        self.number = 0

    # ---- one session

    def run(self, sessions: int) -> None:
        for _ in range(sessions):
            self.session()
        self.disk.fault = None
        self.disk.stop_at = 0
        self.session(last=True)
        self.disk.close()

    def session(self, *, last: bool = False) -> None:
        disk, dice = self.disk, self.dice
        kills = dice.random() < 0.3
        self.closed = False
        if not last:
            disk.stop_kills = kills
            disk.stop_at = dice.choice((0, dice.randint(1, 40), dice.randint(1, 250)))
            if self.faulty and dice.random() < 0.5:
                code = dice.choice((errno.EIO, errno.EIO, errno.ENOSPC))
                disk.fault = (code, dice.choice((dice.randint(1, 40), dice.randint(1, 200))))
                disk.faults_left = dice.choice((1, 1, 5))
        self.log.append(f"session {self.lives} fatal {disk.stop_at} kills {kills} {disk.fault}")
        self.acknowledged = self.flushed = 0
        session = Session(self)
        failed: BaseException | None = None
        try:
            session.work(0 if last else dice.choice((0, 3, 10, 40, 80)))
            if last or dice.random() < 0.3:
                session.close()
                self.closed = True
        except ProcessStopped:
            pass
        except (StoreError, OSError) as error:
            failed = error
        if failed is not None and disk.successor is None and not session.expects(failed):
            raise failed
        killed = disk.stop(kills=kills)
        kills = disk.was_killed
        self.log.append(disk.trace[-1] + (" after close" if self.closed else ""))
        self.traces.append(disk.trace)
        self.cuts += 1
        session.abandon()
        for kept in self.model.all():
            kept.sure = kept.sure or kept.end <= self.flushed or self.closed
            kept.alive = kept.sure or (kills and (kept.alive or kept.end <= self.acknowledged))
        if len(self.traces) > 3:
            self.traces.pop(0)
        self._go_on(killed)
