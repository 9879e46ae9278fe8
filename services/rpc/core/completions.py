"""What gRPC's core has completed, handled on the event loop, many at a turn."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from services.rpc.core import cygrpc
from storage.workers import FunctionWorker

COMPLETIONS_A_TURN: Final = 64  # then others on the loop have their turn
IDLE_TURNS: Final = 2  # without a completion, until the worker waits for one
_NOW: Final = 0.0  # as a deadline: look, and do not wait


class Completions:
    """A completion queue; each completion's tag is called with it, on the event loop.

    While there is work the loop looks by itself and never waits. When nothing has come for a few turns
    a worker waits in the core, and wakes the loop with what comes next. One of the two looks at a time.
    """

    def __init__(self) -> None:
        self.queue = cygrpc.CompletionQueue()
        self._loop = asyncio.get_running_loop()
        self._idle_turns = 0
        self._is_waiting = True  # the worker is
        self._has_ended = self._loop.create_future()
        self._worker = FunctionWorker("calls", self._wait, has_work=lambda: self._is_waiting)
        self._worker.start()

    async def close(self) -> None:
        """Handle what is under way, and end; nothing may be begun any more."""
        self.queue.shutdown()
        await self._has_ended
        self._worker.end()

    def _wait(self) -> None:
        completion = self.queue.poll()
        self._is_waiting = False
        try:
            self._loop.call_soon_threadsafe(self._woken, completion)
        except RuntimeError:  # the loop has been closed
            self._worker.end()

    def _woken(self, completion: Any) -> None:
        if self._handle(completion):
            del completion  # the core waits for a call that it may refer to
            self._idle_turns = 0
            self._look()

    def _look(self) -> None:
        handled = 0
        while handled < COMPLETIONS_A_TURN:
            completion = self.queue.poll(_NOW)
            if completion.completion_type == cygrpc.CompletionType.queue_timeout:
                break
            if not self._handle(completion):
                return
            del completion
            handled += 1
        self._idle_turns = 0 if handled else self._idle_turns + 1
        if self._idle_turns < IDLE_TURNS:
            self._loop.call_soon(self._look)
        else:
            self._is_waiting = True
            self._worker.wake()

    def _handle(self, completion: Any) -> bool:
        """Call its tag; False for the last completion, which has none."""
        if completion.completion_type == cygrpc.CompletionType.queue_shutdown:
            self._has_ended.set_result(None)
            return False
        try:
            completion.tag(completion)
        except Exception as error:  # noqa: BLE001  what comes next is handled nevertheless
            about = {"message": "a completion of gRPC was not handled", "exception": error}
            self._loop.call_exception_handler(about)
        return True
