"""One stream of frames: taken as they come, and answered in their order as soon as their outcomes are known."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Iterator
from typing import Generic, TypeVar

from services.loops import retrieve
from services.rpc.servicer import Context, Draining

OutcomeT = TypeVar("OutcomeT")


class FrameStream(ABC, Generic[OutcomeT]):
    """Takes frames in callbacks. All answers that are known go as one chain, and the next gather meanwhile.

    At most ``in_flight_max`` frames are unanswered: until then the caller is read on. Answers gather in a message
    until it has ``message_bytes``: one after another, which is how protobuf merges repeated fields.
    """

    def __init__(
        self,
        context: Context,
        draining: asyncio.Event,
        *,
        in_flight_max: int,
        message_bytes: int = 0,
    ) -> None:
        self._context = context
        self._message_bytes = message_bytes
        self._draining = draining
        self._in_flight_max = in_flight_max
        self._outcomes: deque[OutcomeT] = deque()  # not answered, in the order of their frames
        self._come = asyncio.Event()  # an outcome has, or the last one
        self._room = asyncio.Event()
        self._is_taking = False  # a frame, which takes a while
        self._has_all = False  # no more outcomes will come

    @abstractmethod
    def _take(self, frame: bytes) -> Awaitable[None] | None:
        """Take a frame as it comes; what is to be waited for before the next one is returned."""

    @abstractmethod
    async def _known(self, outcome: OutcomeT) -> None:
        """Wait until the first outcome is known; it may be answered here, and removed with ``_remove``."""

    @abstractmethod
    def _answer_of(self, outcome: OutcomeT) -> bytes | None:
        """Return the answer to an outcome that is known and not large, None of others."""

    async def serve(self) -> None:
        """Return when the caller has ended the stream and every frame is answered.

        Raises Draining when the service stops: no more frames are taken, those taken are answered.
        """
        answering = asyncio.ensure_future(self._answer())
        receiving = asyncio.ensure_future(self._context.read_each(self._take_on))
        draining = asyncio.ensure_future(self._draining.wait())
        answering.add_done_callback(retrieve)  # of two that break one is raised
        receiving.add_done_callback(retrieve)
        try:
            await asyncio.wait(
                {answering, receiving, draining}, return_when=asyncio.FIRST_COMPLETED
            )
            if answering.done():  # it ends by itself only if the stream broke
                await answering
            if not receiving.done():  # draining: no more frames, but answers to those taken
                if not self._is_taking:
                    receiving.cancel()
                await asyncio.wait({receiving})
            self._has_all = True
            self._come.set()
            await answering
            if receiving.cancelled():
                raise Draining
            receiving.result()
        finally:
            for task in (answering, receiving, draining):
                task.cancel()

    def _take_on(self, frame: bytes) -> Awaitable[None] | None:
        if self._draining.is_set():
            raise Draining
        wanted = self._take(frame)
        if wanted is not None:
            return self._taken(wanted)
        return self._wait_for_room() if len(self._outcomes) >= self._in_flight_max else None

    async def _taken(self, wanted: Awaitable[None]) -> None:
        self._is_taking = True
        try:
            await wanted
        finally:
            self._is_taking = False
        if self._draining.is_set():
            raise Draining
        await self._wait_for_room()

    def _put(self, outcome: OutcomeT) -> None:
        self._outcomes.append(outcome)
        self._come.set()

    def _remove(self) -> None:
        self._outcomes.popleft()
        self._room.set()

    async def _wait_for_room(self) -> None:
        """Return when fewer frames are unanswered than may be: until then the caller is not read."""
        while len(self._outcomes) >= self._in_flight_max:
            self._room.clear()
            await self._room.wait()

    async def _answer(self) -> None:
        """Answer each frame when its outcome is known."""
        while True:
            while not self._outcomes:
                if self._has_all:
                    return
                self._come.clear()
                await self._come.wait()
            await self._known(self._outcomes[0])
            await self._context.write_all(self._answers())

    def _answers(self) -> Iterator[bytes]:
        """Yield messages with the answers of all first outcomes that are known, each when the one before is taken."""
        message = b""
        for answer in self._known_answers():
            message += answer
            if len(message) >= self._message_bytes:
                yield message
                message = b""
        if message:
            yield message

    def _known_answers(self) -> Iterator[bytes]:
        """Remove first outcomes that are known and not large, and yield their answers."""
        outcomes = self._outcomes
        while outcomes:
            answer = self._answer_of(outcomes[0])
            if answer is None:
                return
            self._remove()
            yield answer
