"""One stream of batches: frames are appended as they come, and answered in order when they are safe."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

from services import wire
from services.loops import retrieve
from services.rpc import status
from services.rpc.servicer import Context, Draining
from services.writer import batch_frames
from services.writer.acks import Acks
from services.writer.large_calls import run_large
from storage.errors import StoreClosed, StoreError, StoreFailed
from storage.message import BatchResult, ProducerSequence


class ProduceStream:
    """Receives and answers at once; outcomes are kept in the order of their frames."""

    def __init__(
        self,
        context: Context,
        append_few: Callable[[memoryview, ProducerSequence | None], BatchResult | None],
        append: Callable[[memoryview, ProducerSequence | None], BatchResult],
        acks: Acks,
        draining: asyncio.Event,
        *,
        in_flight_max: int,
        refused: Callable[[Exception], None],
    ) -> None:
        """``refused`` is called with why a frame was."""
        self._context = context
        self._append_few = append_few
        self._append = append
        self._acks = acks
        self._draining = draining
        self._in_flight_max = in_flight_max
        self._refused = refused
        self._outcomes: deque[BatchResult | StoreError] = deque()  # not answered, in order
        self._come = asyncio.Event()  # an outcome has, or the last one
        self._room = asyncio.Event()
        self._is_storing = False  # a large batch, in a thread
        self._has_all = False  # no more outcomes will come

    async def serve(self) -> None:
        """Return when the client has ended the stream and every frame is answered.

        Raises Draining when the service stops: no more frames are taken, those stored are answered.
        """
        answering = asyncio.ensure_future(self._answer())
        receiving = asyncio.ensure_future(self._context.read_each(self._take))
        draining = asyncio.ensure_future(self._draining.wait())
        answering.add_done_callback(retrieve)  # of two that break one is raised
        receiving.add_done_callback(retrieve)
        try:
            await asyncio.wait(
                {answering, receiving, draining}, return_when=asyncio.FIRST_COMPLETED
            )
            if answering.done():  # it ends by itself only if the stream broke
                await answering
            if not receiving.done():  # draining: no more frames, but answers to those stored
                if not self._is_storing:
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

    def _take(self, frame: bytes) -> Awaitable[None] | None:
        """Append a frame as it comes. What is to be waited for before the next one is returned.

        Raises StoreClosed, Draining, DecodeError, which end the stream.
        """
        if self._draining.is_set():
            raise Draining
        records, producer = batch_frames.batch_request(frame)
        try:
            result = self._append_few(records, producer)
        except (StoreError, OSError) as error:
            self._refuse(error)
        else:
            if result is None:
                return self._take_large(records, producer)
            self._put(result)
        return self._wait_for_room() if len(self._outcomes) >= self._in_flight_max else None

    async def _take_large(self, records: memoryview, producer: ProducerSequence | None) -> None:
        self._is_storing = True
        try:
            self._put(await run_large(self._append, records, producer))
        except (StoreError, OSError) as error:
            self._refuse(error)
        finally:
            self._is_storing = False
        if self._draining.is_set():
            raise Draining
        await self._wait_for_room()

    def _refuse(self, error: StoreError | OSError) -> None:
        if isinstance(error, StoreClosed):
            raise error
        refusal = status.refusal_of_frame(error, self._context.peer())
        self._refused(refusal)
        assert isinstance(refusal, StoreError)  # as both kinds of errors are made
        self._put(refusal)

    def _put(self, outcome: BatchResult | StoreError) -> None:
        self._outcomes.append(outcome)
        self._come.set()

    async def _wait_for_room(self) -> None:
        """Return when fewer frames are unanswered than may be: until then the client is not read."""
        while len(self._outcomes) >= self._in_flight_max:
            self._room.clear()
            await self._room.wait()

    async def _answer(self) -> None:
        """Answer each frame when its batch is safe, or never will be."""
        while True:
            while not self._outcomes:
                if self._has_all:
                    return
                self._come.clear()
                await self._come.wait()
            outcome = self._outcomes[0]
            if not isinstance(outcome, StoreError):
                try:
                    if not self._acks.has(outcome.end_commit_offset):
                        await self._acks.wait(outcome.end_commit_offset)
                except StoreFailed as failed:
                    self._outcomes[0] = failed
                else:
                    if len(outcome.ranges) > wire.SLICE_ITEMS:
                        await self._context.write(
                            await run_large(batch_frames.stream_stored, outcome)
                        )
                        self._outcomes.popleft()
                        self._room.set()
                        continue
            await self._context.write_all(self._answers())

    def _answers(self) -> Iterator[bytes]:
        """Yield the answers of all first outcomes that are known and not large, each when the one before is taken."""
        outcomes, acks = self._outcomes, self._acks
        while outcomes:
            outcome = outcomes[0]
            if isinstance(outcome, StoreError):
                answer = batch_frames.stream_failure(wire.failure_of(outcome))
            elif acks.has(outcome.end_commit_offset) and len(outcome.ranges) <= wire.SLICE_ITEMS:
                answer = batch_frames.stream_stored(outcome)
            else:
                return
            outcomes.popleft()
            self._room.set()
            yield answer
