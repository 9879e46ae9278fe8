"""Sends of many clients on their way to the writer: what comes while one batch is stored is the next one.

One batch is under way at a time, so records of a queue are stored in the order in which they came. A
batch whose answer is lost is sent again as it was, under the same sequence, so that the writer stores it
once. A call ends before its client gives up on it, with a status.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from penstock.v1 import writer_pb2
from services import logs
from services.gateway.messages.statuses import CallRefused
from services.gateway.sends.batch_stream import Batches, NotNow, Unanswered
from services.gateway.v2 import definition_pb2 as v2
from storage.clock import suspended_ms
from storage.format.names import TIMER_TOPIC
from storage.format.producer_sequence import PRODUCER_ID_MAX, SEQUENCE_MAX
from storage.message import ProducerSequence

BATCH_BYTES_MAX: Final = 8 << 20
CALL_BYTES_MAX: Final = 12 << 20  # below what the writer takes in one request
ANSWER_SECONDS_MAX: Final = 10.0
_AGAIN_SECONDS: Final = 0.05
_QUIET_TURNS: Final = 4  # of the event loop without a new record; a call takes some to be read
_GATHER_SECONDS_MAX: Final = 0.02  # senders who wait for no answer may never pause

QueueKey = tuple[str, int]
TIMER_QUEUE: Final = (TIMER_TOPIC, 0)  # where delayed messages are until they are due


@dataclass(slots=True)
class HandedOver:
    """Records of one call, the queue of each, and their queue offsets once they are stored."""

    queues: Sequence[QueueKey]
    records: Sequence[bytes]
    size: int
    stored: asyncio.Future[list[int]]


@dataclass(slots=True)
class WaitingRoom:
    """How much waits for the writer, of all senders that share it, and how much may."""

    bytes_max: int
    bytes: int = 0


class Sender:
    """Takes records, stores them in batches. All methods run on the event loop."""

    def __init__(self, batches: Batches, room: WaitingRoom) -> None:
        self._batches = batches
        self._waiting: deque[HandedOver] = deque()
        self._waiting_bytes = 0
        self._room = room
        self._running: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._sequences = _sequences()

    async def store(
        self, queues: Sequence[QueueKey], records: Sequence[bytes], until: float
    ) -> list[int]:
        """Store records, all or none, in their order; return the queue offset of each.

        ``until`` is when the caller needs an answer, by the loop's clock. Raises CallRefused:
        PAYLOAD_TOO_LARGE, TOO_MANY_REQUESTS if too much waits for the writer, PROXY_TIMEOUT if they are
        not stored in time; then they may be stored nevertheless, if the writer had them already.
        """
        size = sum(map(len, records))
        if size > CALL_BYTES_MAX:
            raise CallRefused(
                v2.PAYLOAD_TOO_LARGE,
                f"{size} bytes in one request; the most is {CALL_BYTES_MAX}. Send it in parts",
            )
        if self._room.bytes and self._room.bytes + size > self._room.bytes_max:
            raise CallRefused(
                v2.TOO_MANY_REQUESTS, "too many messages wait for the writer; try again"
            )
        sending = HandedOver(queues, records, size, self._loop.create_future())
        self._waiting.append(sending)
        self._waiting_bytes += size
        self._room.bytes += size
        if self._running is None:
            self._running = self._loop.create_task(self._run())
        late = self._loop.call_at(until, _give_up, sending.stored)
        try:
            return await sending.stored
        finally:
            late.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._gathered()
                batch = self._next_batch()
                try:
                    await self._send(batch)
                except Exception as error:  # noqa: BLE001  callers wait for an answer
                    self._fail(batch, error)
        finally:
            self._running = None

    async def _gathered(self) -> None:
        """Wait while calls come in: they go together, at the price of one batch."""
        quiet_turns = 0
        until = self._loop.time() + _GATHER_SECONDS_MAX
        while (
            quiet_turns < _QUIET_TURNS
            and self._waiting_bytes < BATCH_BYTES_MAX
            and self._loop.time() < until
        ):
            count = len(self._waiting)
            await asyncio.sleep(0)
            quiet_turns = quiet_turns + 1 if len(self._waiting) == count else 0

    def _next_batch(self) -> list[HandedOver]:
        """Take what goes together; what nobody waits for any more is dropped."""
        batch: list[HandedOver] = []
        size = 0
        while self._waiting:
            first = self._waiting[0]
            if batch and size + first.size > BATCH_BYTES_MAX:
                break
            self._waiting.popleft()
            self._waiting_bytes -= first.size
            self._room.bytes -= first.size
            if not first.stored.done():
                batch.append(first)
                size += first.size
        return batch

    async def _send(self, batch: list[HandedOver]) -> None:
        """Store a batch, again and again while somebody waits for it."""
        producer = next(self._sequences)
        taken_at: float | None = None  # when it was sent first and may have been stored
        while any(not sending.stored.done() for sending in batch):
            if taken_at is None:
                batch = [sending for sending in batch if not sending.stored.done()]
            sent_at = self._loop.time() + suspended_ms() / 1_000
            age_ms = 0 if taken_at is None else int((sent_at - taken_at) * 1_000) + 1
            try:
                stored = await self._batches.store(
                    [record for sending in batch for record in sending.records],
                    producer._replace(age_ms=age_ms),
                )
            except NotNow:
                await asyncio.sleep(_AGAIN_SECONDS)
            except Unanswered:
                taken_at = sent_at if taken_at is None else taken_at
                await asyncio.sleep(_AGAIN_SECONDS)
            except CallRefused as refusal:
                if len(batch) == 1 or refusal.code == v2.INTERNAL_SERVER_ERROR:
                    for sending in batch:
                        _refuse(sending, refusal)
                    return
                for sending in batch:  # one of them is at fault: each for itself, in order
                    await self._send([sending])
                return
            else:
                _answer(batch, stored)
                return

    def _fail(self, batch: list[HandedOver], error: Exception) -> None:
        """Refuse a batch at a fault of this program's, which must not stop the others."""
        logs.get_logger().error("batch failed", exc_info=error)
        for sending in batch:
            _refuse(sending, CallRefused(v2.INTERNAL_SERVER_ERROR, "internal error"))


def _sequences() -> Iterator[ProducerSequence]:
    """Yield the sequences of one producer after the other, without end."""
    while True:
        producer_id = secrets.randbelow(PRODUCER_ID_MAX) + 1
        for sequence in range(1, SEQUENCE_MAX + 1):
            yield ProducerSequence(producer_id, sequence)


def _answer(batch: list[HandedOver], stored: writer_pb2.ProduceBatchResponse) -> None:
    """Tell each caller where its records are: a queue's are in the order of the batch.

    -1 where that is not known: the time of a delayed message had passed when the writer took it.
    """
    counts = Counter(queue for sending in batch for queue in sending.queues)
    places: defaultdict[QueueKey, list[range]] = defaultdict(list)
    for each in stored.ranges:  # two of a queue where a stop came between
        begin = each.first_queue_offset
        places[each.topic, each.queue_id].append(range(begin, begin + each.count))
    following = {
        queue: chain.from_iterable(ranges)
        for queue, ranges in places.items()
        if sum(map(len, ranges)) == counts[queue]
    }
    for sending in batch:
        offsets = [next(following[queue]) if queue in following else -1 for queue in sending.queues]
        if not sending.stored.done():
            sending.stored.set_result(offsets)


def _refuse(sending: HandedOver, refusal: CallRefused) -> None:
    if not sending.stored.done():
        sending.stored.set_exception(refusal)


def _give_up(stored: asyncio.Future[list[int]]) -> None:
    if not stored.done():
        stored.set_exception(CallRefused(v2.PROXY_TIMEOUT, "the writer did not answer in time"))
