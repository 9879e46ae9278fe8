"""One stream of batches: frames are appended as they come, and answered in order when they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from services import wire
from services.rpc import status
from services.rpc.frame_stream import FrameStream
from services.rpc.servicer import Context
from services.writer import batch_frames
from services.writer.acks import Acks
from services.writer.large_calls import run_large
from storage.errors import StoreClosed, StoreError, StoreFailed
from storage.message import BatchResult, ProducerSequence

# Of answers together: far below the 4 MiB that gRPC's clients take by default.
MESSAGE_BYTES: Final = 16 << 10
SMALL_BYTES: Final = 16 << 10  # of a frame's records, which are of too few queues to take long
TOGETHER_BYTES: Final = 128 << 10  # of small frames


class _Ended(NamedTuple):
    """In place of an outcome: what ends the stream."""

    error: Exception


class ProduceStream(FrameStream[BatchResult | StoreError | _Ended]):
    """Receives and answers at once; outcomes are kept in the order of their frames.

    Small frames that come in one turn of the loop are appended together in the next: frames of one message share
    most of what an append costs. The stream's end is handled later still, as it wakes a task first.
    """

    def __init__(
        self,
        context: Context,
        append_together: Callable[[Sequence[memoryview]], list[BatchResult] | None],
        append_few: Callable[[memoryview, ProducerSequence | None], BatchResult | None],
        append: Callable[[memoryview, ProducerSequence | None], BatchResult],
        acks: Acks,
        draining: asyncio.Event,
        *,
        in_flight_max: int,
        refused: Callable[[Exception], None],
    ) -> None:
        """``refused`` is called with why a frame was."""
        super().__init__(
            context, draining, in_flight_max=in_flight_max, message_bytes=MESSAGE_BYTES
        )
        self._append_together = append_together
        self._append_few = append_few
        self._append = append
        self._acks = acks
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._gathered: list[memoryview] = []
        self._gathered_bytes = 0

    def _take(self, frame: bytes) -> Awaitable[None] | None:
        """Append a frame, now or at the end of this turn. Raises StoreClosed, DecodeError, which end the stream."""
        records, producer = batch_frames.batch_request(frame)
        if producer is None and 0 < len(records) <= SMALL_BYTES:
            self._gather(records)
            return None
        self._append_gathered()
        return self._append_frame(records, producer)

    def _gather(self, records: memoryview) -> None:
        if not self._gathered:
            self._loop.call_soon(self._append_gathered)
        self._gathered.append(records)
        self._gathered_bytes += len(records)
        unanswered = len(self._outcomes) + len(self._gathered)
        if self._gathered_bytes >= TOGETHER_BYTES or unanswered >= self._in_flight_max:
            self._append_gathered()

    def _append_gathered(self) -> None:
        batches, self._gathered, self._gathered_bytes = self._gathered, [], 0
        try:
            results = self._append_together(batches) if len(batches) > 1 else None
            if results is not None:
                self._outcomes.extend(results)
                self._come.set()
                return
            for records in batches:
                large = self._append_frame(records, None)
                assert large is None
        except Exception as error:  # noqa: BLE001  raised once the frames before are answered
            self._put(_Ended(error))

    def _append_frame(
        self, records: memoryview, producer: ProducerSequence | None
    ) -> Awaitable[None] | None:
        try:
            result = self._append_few(records, producer)
        except (StoreError, OSError) as error:
            self._refuse(error)
        else:
            if result is None:
                return self._take_large(records, producer)
            self._put(result)
        return None

    async def _take_large(self, records: memoryview, producer: ProducerSequence | None) -> None:
        try:
            self._put(await run_large(self._append, records, producer))
        except (StoreError, OSError) as error:
            self._refuse(error)

    def _refuse(self, error: StoreError | OSError) -> None:
        if isinstance(error, StoreClosed):
            raise error
        refusal = status.refusal_of_frame(error, self._context.peer())
        self._refused(refusal)
        assert isinstance(refusal, StoreError)  # as both kinds of errors are made
        self._put(refusal)

    async def _known(self, outcome: BatchResult | StoreError | _Ended) -> None:
        """Return when the first batch is safe, or never will be; a large answer is written here."""
        if isinstance(outcome, _Ended):
            raise outcome.error
        if isinstance(outcome, StoreError):
            return
        try:
            if not self._acks.has(outcome.end_commit_offset):
                await self._acks.wait(outcome.end_commit_offset)
        except StoreFailed as failed:
            self._outcomes[0] = failed
            return
        if len(outcome.ranges) > wire.SLICE_ITEMS:
            await self._context.write(await run_large(batch_frames.stream_stored, outcome))
            self._remove()

    def _answer_of(self, outcome: BatchResult | StoreError | _Ended) -> bytes | None:
        if isinstance(outcome, _Ended):
            return None
        if isinstance(outcome, StoreError):
            return batch_frames.stream_failure(wire.failure_of(outcome))
        if self._acks.has(outcome.end_commit_offset) and len(outcome.ranges) <= wire.SLICE_ITEMS:
            return batch_frames.stream_stored(outcome)
        return None
