"""A writer whose threads do nothing by themselves: each part works when it is told to.

So a test decides which part is how far, and the same seed gives the same run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from storage.engine.checkpointer import CheckpointKeeper
from storage.engine.engine import Engine
from storage.errors import StoreBusy, StoreError, StoreFailed, StoreFull
from storage.files.allocator import MappedFileAllocator
from storage.log.flush import _PositionService
from storage.queues.dispatch import DispatchThread


class StepClock:
    """Each look is a moment later."""

    def __init__(self) -> None:
        self._now = 1_700_000_000.0

    def now_ms(self) -> int:
        self._now += 0.001
        return int(self._now * 1000)

    def monotonic(self) -> float:
        self._now += 0.3
        return self._now


def dispatch(thread: DispatchThread) -> None:
    """Let dispatch come as far as it may, as its thread would."""
    stopping, thread._stopping = thread._stopping, True
    try:
        thread._round()
    except (StoreError, OSError) as error:
        thread.problem = f"dispatch failed: {error}"
        thread._fail(error)
    finally:
        thread._stopping = stopping


def without_threads(patches: pytest.MonkeyPatch) -> None:
    """Take the threads from every engine that is opened from here on."""

    def dispatched(thread: DispatchThread, commit_offset: int, _: float) -> bool:
        dispatch(thread)
        return thread.position >= commit_offset

    def waited(service: Any, offset: int, _: float | None = None) -> bool:
        if service._offset < offset:
            service.run_once()
        return bool(service._offset >= offset)

    patches.setattr(DispatchThread, "start", lambda _: None)
    patches.setattr(DispatchThread, "stop", dispatch)
    patches.setattr(DispatchThread, "wait", dispatched)
    patches.setattr(_PositionService, "start", lambda self, offset: self.set_offset(offset))
    patches.setattr(_PositionService, "wait", waited)
    patches.setattr(CheckpointKeeper, "start", lambda _: None)
    patches.setattr(MappedFileAllocator, "start", lambda _: None)


class Parts:
    """What the threads of an engine do, one thing at a time; errors go where they would."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def commit(self) -> None:
        if self.engine.committer is not None:
            with suppress(StoreFull, StoreFailed):
                self.engine.committer.run_once()

    def flush(self) -> None:
        with suppress(StoreFull, StoreFailed):
            self.engine.flusher.run_once()

    def dispatch(self) -> None:
        if not self.engine.dispatch.problem.startswith("dispatch failed"):
            dispatch(self.engine.dispatch)

    def keep(self) -> None:
        with suppress(StoreFailed):
            self.engine.keeper.keep()

    def allocate(self) -> None:
        """Make the next log file ahead of need."""
        allocator = self.engine._allocator
        if allocator._wanted:
            start_offset = allocator._wanted.pop(0)
            if start_offset not in allocator._prepared:
                with suppress(StoreFull, StoreBusy, OSError):
                    allocator._prepared[start_offset] = allocator._create(start_offset)
