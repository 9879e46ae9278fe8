"""Shorter turns of threads at the interpreter, while one of them works on a large call.

CPython lets a thread go on for 5 ms while others wait, and a small call on the event loop waits for
several turns: 40 to 70 ms beside a batch for tens of thousands of queues. Shorter turns for good cost
single messages a tenth of their rate, so they are short only while somebody needs it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

SHORT_TURN_S: Final = 0.001

_T = TypeVar("_T")


class ShortTurns:
    """A context that many threads may be in at once: turns are short until the last one leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._usual_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(SHORT_TURN_S)
            self._inside += 1

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._usual_s)


_short_turns: Final = ShortTurns()


async def run_large(function: Callable[..., _T], *arguments: Any) -> _T:
    """Return what a large call returns, made in a thread; turns are short meanwhile."""
    return await asyncio.to_thread(_run, function, arguments)


def _run(function: Callable[..., _T], arguments: tuple[Any, ...]) -> _T:
    with _short_turns:
        return function(*arguments)
