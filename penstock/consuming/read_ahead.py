"""A stream of answers, read ahead of who takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import grpc

from penstock.background import AsyncWakeUp, Background, WakeUp
from penstock.calls.call import Call
from penstock.channel import ServiceChannels
from penstock.errors import ClientClosed, PenstockError

T = TypeVar("T")
_AHEAD: Final = 2  # answers that wait here; what is behind them waits in gRPC
_LOOK_S: Final = 1.0


class ReadAhead(Generic[T]):
    """Reads a stream in a thread of its own, and holds a few answers.

    After an interrupt or a cancellation of who takes them it goes on, and no answer is lost.
    """

    def __init__(
        self,
        channels: ServiceChannels,
        call: Call[T],
        woken: WakeUp | AsyncWakeUp,
        error_of: Callable[[Call[Any], grpc.RpcError], PenstockError],
    ) -> None:
        self._channels = channels
        self._call = call
        self._error_of = error_of
        self._stream: Any = None
        self._answers: deque[T] = deque()
        self._failed: BaseException | None = None
        self._has_ended = False
        self._woken = woken
        self._background = Background("penstock-stream")

    def stop(self) -> None:
        """Read no more."""
        self._background.stop()
        if self._stream is not None:
            self._stream.cancel()

    async def end(self) -> None:
        """Read no more, and wait until the thread has ended."""
        self.stop()
        while self._background.has_begun and not self._has_ended:
            await self._woken.wait(None)
        self._woken.set()  # who waits for an answer, too
        await self._background.join()

    async def next_answer(self) -> T:
        """Return the next answer. Raises StopAsyncIteration at the end, once what the stream failed with."""
        if self._background.is_stopping:
            raise StopAsyncIteration
        self._background.start(self._read)
        self._background.wake()  # what was handed out last has left room
        while not self._answers:
            if self._has_ended and not self._answers:
                self._woken.set()  # who waits for the end, too
                failed, self._failed = self._failed, None
                if failed is not None and not self._background.is_stopping:
                    raise failed
                raise StopAsyncIteration
            await self._woken.wait(None)
        answer = self._answers[0]
        del self._answers[0]  # after the last call: an interrupt finds it here, or with the caller
        return answer

    async def _read(self) -> None:
        """Read to the end, never far ahead."""
        try:
            stub = self._channels.stub(self._call.method, "iterators")
            self._stream = stub(self._call.request)
            if not self._background.is_stopping:
                await self._take_all()
        except grpc.RpcError as error:
            closed = ClientClosed("the client was closed")
            self._failed = closed if self._channels.is_closed else self._error_of(self._call, error)
            self._failed.__cause__ = error
        except Exception as error:  # noqa: BLE001  who takes the answers raises it
            self._failed = error
        finally:
            if self._stream is not None:
                self._stream.cancel()
            self._has_ended = True
            self._woken.set()

    async def _take_all(self) -> None:
        for response in self._stream:
            self._answers.append(self._call.interpret(response))
            self._woken.set()
            while len(self._answers) >= _AHEAD and not self._background.is_stopping:
                await self._background.pause(_LOOK_S)
