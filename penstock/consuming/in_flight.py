"""Calls that a consumer has under way, answered in grpc's threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import grpc

from penstock.background import AsyncWakeUp, WakeUp
from penstock.calls.call import Call
from penstock.channel import AsyncHome, Home, ServiceChannels
from penstock.errors import ClientClosed

Successor = Callable[[Any, Any], Call[Any] | None]
"""Returns the call to make as soon as a response is here, of the call's purpose and the response; None: none."""


def _none(_purpose: Any, _response: Any) -> None:
    """Return None: nothing follows."""


class Answered(NamedTuple):
    """A call that ended: what it was made for, the call, and the response or the error.

    With ``is_followed`` its successor is under way, for the same purpose.
    """

    purpose: Any
    call: Call[Any]
    outcome: Any
    is_followed: bool = False


class InFlightCalls:
    """Calls under way of an iterator that one thread or task uses; ``take`` is called with each that has ended.

    They are made by the client's thread for calls, and ``take`` is called in a thread of grpc's: an interrupt
    (Ctrl-C) or a cancellation of the iterator reaches neither.
    """

    def __init__(
        self,
        channels: ServiceChannels,
        take: Callable[[Answered], None],
        home: Home | AsyncHome,
        woken: WakeUp | AsyncWakeUp,
    ) -> None:
        self._home = home
        self._channels = channels
        self._take = take
        self._running: set[Any] = set()
        self._woken = woken
        self._is_cancelled = False

    def start(
        self, purpose: Any, call: Call[Any], timeout_s: float, successor: Successor = _none
    ) -> None:
        """Send a call, and its successors one by one. Raises ClientClosed."""
        self._home.check()
        self._channels.check_open()
        self._channels.call_thread.do(lambda: self._send(purpose, call, timeout_s, successor))

    def _send(self, purpose: Any, call: Call[Any], timeout_s: float, successor: Successor) -> None:
        try:
            self._begin(purpose, call, timeout_s, successor)
        except (ClientClosed, ValueError):  # the channel was closed
            self._taken(Answered(purpose, call, _closed(self._channels)))
        except Exception as error:  # noqa: BLE001  whoever waits for the answer raises it
            self._taken(Answered(purpose, call, error))

    def _begin(self, purpose: Any, call: Call[Any], timeout_s: float, successor: Successor) -> None:
        stub = self._channels.stub(call.method, "iterators")
        future = stub.future(call.request, timeout=timeout_s)

        def end(done: Any) -> None:
            outcome, following = self._outcome(done), None
            if not isinstance(outcome, Exception) and not self._is_cancelled:
                with suppress(Exception):  # without a successor the one that waits makes the call
                    following = successor(purpose, outcome)
            # Before its successor is sent, whose answer may come in another thread at once.
            self._take(Answered(purpose, call, outcome, following is not None))
            if (
                following is not None
            ):  # sent before the one that waits keeps this thread from running
                self._send(purpose, following, timeout_s, successor)
            self._woken.set()

        self._running.add(future)
        future.add_done_callback(end)

    def _outcome(self, future: Any) -> Any:
        self._running.discard(future)
        try:
            return future.result()
        except grpc.FutureCancelledError:
            return _closed(self._channels)
        except Exception as error:  # noqa: BLE001  whoever waits for the answer raises it
            return _closed(self._channels) if self._channels.is_closed else error

    def _taken(self, ended: Answered) -> None:
        try:
            self._take(ended)
        finally:
            self._woken.set()

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until an answer was taken since the last wait, at most so long."""
        self._home.check()
        await self._woken.wait(timeout_s)

    def cancel(self) -> None:
        """Cancel what is under way, and end a wait; any thread may say so."""
        self._is_cancelled = True
        self._channels.call_thread.do(self._cancel_all)
        self._woken.set()

    def _cancel_all(self) -> None:
        for future in tuple(self._running):
            future.cancel()


def _closed(channels: ServiceChannels) -> ClientClosed:
    return ClientClosed(f"the {'client' if channels.is_closed else 'consumer'} was closed")
