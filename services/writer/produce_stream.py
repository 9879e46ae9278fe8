"""One stream of batches: frames are appended as they come, and answered in order when they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from services import wire
from services.loops import retrieve
from services.rpc import status
from services.rpc.servicer import EOF, Context, Draining
from services.writer import batch_frames
from services.writer.acks import Acks
from services.writer.eager_coroutine import EagerCoroutine
from services.writer.large_calls import run_large
from storage.errors import StoreClosed, StoreError, StoreFailed
from storage.message import BatchResult, ProducerSequence

_END: Final = object()


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
        self._outcomes: asyncio.Queue[Any] = asyncio.Queue()
        self._unanswered = 0
        self._is_reading = False
        self._room = asyncio.Event()
        self._reading: EagerCoroutine[Any] | None = None
        self._writing: EagerCoroutine[None] | None = None

    async def serve(self) -> None:
        """Return when the client has ended the stream and every frame is answered.

        Raises Draining when the service stops: no more frames are taken, those stored are answered.
        """
        answering = asyncio.ensure_future(self._answer())
        receiving = asyncio.ensure_future(self._receive())
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
                if self._is_reading:
                    receiving.cancel()
                await asyncio.wait({receiving})
            self._outcomes.put_nowait(_END)
            await answering
            if receiving.cancelled():
                raise Draining
            receiving.result()
        finally:
            for task in (answering, receiving, draining):
                task.cancel()
            self._cancel()

    async def _receive(self) -> None:
        """Append frames as they come; too many unanswered ones stop reading, and so the client.

        What is safe at once, with nothing before it unanswered, is answered here, without the other task.
        """
        append_few, acks, draining = self._append_few, self._acks, self._draining
        reading = self._begin_read()
        while not draining.is_set():
            self._is_reading = True
            frame = await reading
            self._is_reading = False
            if frame is EOF:
                return
            reading = self._begin_read()
            try:
                records, producer = batch_frames.batch_request(frame)
                result = append_few(records, producer)
                if result is None:
                    result = await run_large(self._append, records, producer)
            except StoreClosed:
                raise
            except (StoreError, OSError) as error:
                refusal = status.refusal_of_frame(error, self._context.peer())
                self._refused(refusal)
                await self._queue(refusal)
                continue
            is_short = len(result.ranges) <= wire.SLICE_ITEMS
            if is_short and self._unanswered == 0 and acks.has(result.end_commit_offset):
                await self._write(batch_frames.stream_stored(result))
            else:
                await self._queue(result)
        raise Draining

    async def _answer(self) -> None:
        """Answer each frame when its batch is safe, or never will be."""
        while (outcome := await self._outcomes.get()) is not _END:
            if not isinstance(outcome, StoreError):
                try:
                    if not self._acks.has(outcome.end_commit_offset):
                        await self._acks.wait(outcome.end_commit_offset)
                except StoreFailed as failed:
                    outcome = failed
            if isinstance(outcome, StoreError):
                answer = batch_frames.stream_failure(wire.failure_of(outcome))
            elif len(outcome.ranges) > wire.SLICE_ITEMS:
                answer = await run_large(batch_frames.stream_stored, outcome)
            else:
                answer = batch_frames.stream_stored(outcome)
            await self._write(answer)
            self._answered()
        await self._written()

    def _begin_read(self) -> EagerCoroutine[Any]:
        """Ask for the next frame, so that it comes while the one before is stored."""
        self._reading = EagerCoroutine(self._context.read())
        return self._reading

    async def _write(self, answer: bytes) -> None:
        """Begin to write; the end is waited for before the next one, so that a read can go beside."""
        if self._writing is not None:
            await self._written()
        self._writing = EagerCoroutine(self._context.write(answer))

    async def _written(self) -> None:
        """Wait for the last write. Raises what it raised."""
        writing = self._writing
        if writing is None:
            return
        self._writing = None
        await writing

    async def _queue(self, outcome: BatchResult | Exception) -> None:
        """Leave an outcome to be answered; waits while as many are unanswered as may be."""
        self._unanswered += 1
        self._outcomes.put_nowait(outcome)
        while self._unanswered >= self._in_flight_max:
            self._room.clear()
            await self._room.wait()

    def _answered(self) -> None:
        """Say that the oldest outcome was answered."""
        self._unanswered -= 1
        self._room.set()

    def _cancel(self) -> None:
        """Cancel the read and the write that are under way."""
        for operation in (self._reading, self._writing):
            if operation is not None:
                operation.cancel()
