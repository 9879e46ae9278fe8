"""One queue read as a stream of pulls."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from penstock.background import AsyncBackground, AsyncWakeUp
from penstock.calls.call import Call
from penstock.channel import (
    CALL_FAILED,
    AsyncHome,
    AsyncServiceChannels,
    failure_of,
    is_cancellation,
)
from penstock.closing import AsyncClosing
from penstock.errors import Cancelled, ClientClosed
from penstock.proxies import Way, way_to
from penstock.values import PullResult

_AHEAD: Final = 2  # results that wait here; what is behind them waits in gRPC
_LOOK_S: Final = 1.0


class AsyncPullStream(AsyncIterator[PullResult], AsyncClosing):
    """Pulls that the reader sends ahead; made by `AsyncClient.pull_stream`, used by one task.

    A thread or task of its own reads the stream, so after an interrupt or a cancellation of ``next`` it goes
    on and no result is lost.
    """

    def __init__(self, channels: AsyncServiceChannels, call: Call[PullResult]) -> None:
        self._home = AsyncHome()
        self._ahead = AsyncReadAhead(channels, call)
        self._is_closed = False

    def __del__(self) -> None:
        self._ahead.stop()

    async def close(self) -> None:
        """Read no more: the iteration ends. Closing twice does nothing."""
        self._home.check()
        self._is_closed = True
        self._ahead.stop()
        await self._ahead.background.join()

    async def __anext__(self) -> PullResult:
        self._home.check()
        if self._is_closed:
            raise StopAsyncIteration
        ahead = self._ahead
        ahead.background.start(ahead.read)
        ahead.background.wake()  # what was handed out last has left room
        while not ahead.results:
            if ahead.has_ended and not ahead.results:
                failed, ahead.failed = ahead.failed, None
                if failed is not None and not self._is_closed:
                    raise failed
                raise StopAsyncIteration
            await ahead.woken.wait(None)
        result = ahead.results[0]
        del ahead.results[0]  # after the last call: an interrupt finds it here, or with the caller
        return result


class AsyncReadAhead:
    """Reads a stream beside its iterator, and holds a few results."""

    def __init__(self, channels: AsyncServiceChannels, call: Call[PullResult]) -> None:
        self._channels = channels
        self._call = call
        self._stream: Any = None
        self.results: deque[PullResult] = deque()
        self.failed: BaseException | None = None
        self.has_ended = False
        self.woken = AsyncWakeUp()
        self.background = AsyncBackground("penstock-stream")

    def stop(self) -> None:
        """Read no more."""
        self.background.stop()
        if self._stream is not None:
            self._stream.cancel()

    async def read(self) -> None:
        """Read to the end, never far ahead."""
        try:
            stub = self._channels.stub(self._call.method, "iterators")
            self._stream = stub(self._call.request)
            if not self.background.is_stopping:
                await self._read()
        except (*CALL_FAILED, Exception) as error:  # noqa: BLE001  the iterator raises it
            self.failed = self._error_of(error)
        finally:
            if self._stream is not None:
                self._stream.cancel()
            self.has_ended = True
            self.woken.set()

    def _error_of(self, error: BaseException) -> BaseException:
        if self._channels.is_closed:
            return ClientClosed("the client was closed")
        if not isinstance(error, CALL_FAILED):
            return error
        if is_cancellation(error):
            return Cancelled("the task that reads the stream was cancelled")
        failure = failure_of(error)
        address = self._channels.addresses.of(self._call.method.service)
        raised = self._call.error_of(failure, Way(way_to(address), self._channels.tls))
        raised.__cause__ = failure
        return raised

    async def _read(self) -> None:
        async for response in self._stream:
            self.results.append(self._call.interpret(response))
            self.woken.set()
            while len(self.results) >= _AHEAD and not self.background.is_stopping:
                await self.background.pause(_LOOK_S)
