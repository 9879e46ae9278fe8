"""Pulls: one answer with long polling, and the stream that goes on by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from penstock.v1 import common_pb2, reader_pb2
from services import wire
from services.arrivals import Arrivals, Moment
from services.reader.budget import Budget
from services.reader.catch_up import CatchUp, wait_until
from services.reader.records import ask_decoded
from services.reader.traffic import Traffic
from services.rpc.servicer import Context, Draining
from services.rpc.status import InvalidArgument
from storage.message import PullResult, PullStatus
from storage.reader import StoreReader
from storage.view.queues.arrived import FEW_BYTES, Queue

MAX_MESSAGES_DEFAULT: Final = 32
MAX_BYTES_DEFAULT: Final = 1 << 20
NO_END: Final = 1 << 62
_STREAM_MESSAGES_MAX: Final = 1 << 20
_FOLLOW_LOOK_SECONDS: Final = 60.0
_WARM_SECONDS: Final = 1.0  # pages that were read so lately are in memory still
_TAILS_MAX: Final = 4_096
_NOT_MET: Final = (-1, 0, 0.0)
_MORE_MAY_COME: Final = frozenset(
    {PullStatus.OFFSET_OVERFLOW_ONE, PullStatus.NO_MESSAGE_IN_QUEUE, PullStatus.NO_MATCHED_MESSAGE}
)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PullQuestion:
    """A checked pull."""

    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int
    tag_expression: str
    decode: bool
    end_offset: int = NO_END

    @classmethod
    def of(
        cls, request: reader_pb2.PullRequest | reader_pb2.PullStreamRequest, *, bytes_max: int
    ) -> PullQuestion:
        """Check a request and fill in its defaults."""
        if isinstance(request, reader_pb2.PullRequest):
            max_messages = request.max_messages or MAX_MESSAGES_DEFAULT
        else:
            max_messages = _STREAM_MESSAGES_MAX
        end_offset = NO_END
        if isinstance(request, reader_pb2.PullStreamRequest) and request.HasField("end_offset"):
            end_offset = request.end_offset
            if end_offset <= request.queue_offset:
                raise InvalidArgument(
                    "end_offset", f"must be above queue_offset, and is {end_offset}"
                )
        for name, value in (
            ("max_messages", max_messages),
            ("max_bytes", request.max_bytes),
        ):
            if value < 0:
                raise InvalidArgument(name, f"must not be negative, and is {value}")
        return cls(
            request.topic,
            request.queue_id,
            request.queue_offset,
            max_messages,
            min(request.max_bytes or MAX_BYTES_DEFAULT, bytes_max),
            request.tag_expression,
            request.decode,
            end_offset,
        )

    def at(self, queue_offset: int) -> PullQuestion:
        """Return the same pull from another offset on."""
        return replace(self, queue_offset=queue_offset)

    @property
    def queue(self) -> Queue:
        """Which queue it is of."""
        return self.topic, self.queue_id

    @property
    def is_answered(self) -> bool:
        """Whether everything before ``end_offset`` has been returned."""
        return self.queue_offset >= self.end_offset


class Answer(NamedTuple):
    """A serialized response, and what decides whether it is one to give.

    Its records are views of the log's pages until they are joined, best by the thread that writes
    the answer: what it has just copied is in its processor's cache when the transport copies it.
    """

    status: PullStatus
    next_offset: int
    at_end: bool  # of what is visible of the queue
    parts: wire.Parts
    read_at: float  # by the monotonic clock
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the response."""
        return sum(map(len, self.parts))

    def joined(self) -> bytes:
        """Return the response."""
        return b"".join(self.parts)


class Tails:
    """Where the ends of queues were that pulls have met, so that a pull from there on has few records."""

    def __init__(self) -> None:
        self._met: dict[Queue, tuple[int, int, float]] = {}

    def note(self, question: PullQuestion, answer: Answer, moment: Moment) -> None:
        """Take in an answer to a question that was asked after a moment."""
        if answer.at_end:
            if len(self._met) >= _TAILS_MAX:
                self._met.clear()
            self._met[question.queue] = (answer.next_offset, moment.end, answer.read_at)

    def are_few(self, question: PullQuestion, moment: Moment) -> bool:
        """Return whether what there is from a question's offset on is little, and has come lately."""
        next_offset, end, read_at = self._met.get(question.queue, _NOT_MET)
        return question.queue_offset == next_offset and _is_little(end, read_at, moment)


def _is_little(end: int, read_at: float, moment: Moment) -> bool:
    """Return whether little has come from ``end`` until the moment, and lately: its pages are in memory still."""
    return moment.end - end <= FEW_BYTES and time.monotonic() - read_at <= _WARM_SECONDS


class Pulls:
    """Answers pulls; the engine's part runs on ``executor`` because a cold page is a disk read."""

    def __init__(
        self,
        reader: StoreReader,
        arrivals: Arrivals,
        catch_up: CatchUp,
        executor: Executor,
        draining: asyncio.Event,
        budget: Budget,
        traffic: Traffic,
    ) -> None:
        self._traffic = traffic
        self._reader = reader
        self._arrivals = arrivals
        self._catch_up = catch_up
        self._executor = executor
        self._draining = draining
        self._budget = budget
        self._tails = Tails()
        self._loop = asyncio.get_running_loop()

    async def one(self, question: PullQuestion, context: Context, *, wait_ms: int) -> bytes:
        """Answer one pull, after at most ``wait_ms`` and before the caller's deadline.

        The end of the queue is reported only when everything acknowledged before the call is visible.
        """
        pending = self._catch_up.pending()
        until = wait_until(context, wait_ms / 1e3)
        moment = self._arrivals.moment
        few = self._tails.are_few(question, moment)
        while True:
            answer = await self._asked(question, few=few)
            self._tails.note(question, answer, moment)
            left = until - self._loop.time()
            if pending and answer.at_end and left <= 0:
                await self._catch_up.visible(pending, context)
                pending, few = 0, False
                moment = self._arrivals.moment
                continue
            if answer.status not in _MORE_MAY_COME or left <= 0 or self._draining.is_set():
                if answer.record_count:
                    self._traffic.add(question.topic, "", answer.record_count, answer.size)
                return answer.joined()
            if (
                answer.status is PullStatus.NO_MATCHED_MESSAGE
                and answer.next_offset > question.queue_offset
            ):
                question, few = question.at(answer.next_offset), False
            else:
                few = await self._arrivals.wait_for_key(question.queue, moment, left)
            moment = self._arrivals.moment

    async def stream(self, question: PullQuestion, context: Context, *, follow: bool) -> None:
        """Answer pull after pull; the next is prepared while HTTP/2 takes the one before.

        Where there is no memory for that, it is prepared afterwards, and so it is at the end of what
        there is. Raises StoreBusy if there is no memory for the next answer at all.
        """
        pending = 0 if follow else self._catch_up.pending()
        moment = self._arrivals.moment
        answer = await self._held(question)
        while True:
            status, few = answer.status, False
            moved = (
                answer.next_offset > question.queue_offset or status is PullStatus.OFFSET_TOO_SMALL
            )
            if status is PullStatus.FOUND or (moved and status not in _MORE_MAY_COME):
                question = question.at(answer.next_offset)
                waits = follow and answer.at_end
                goes_on = not (waits or question.is_answered)
                if goes_on:
                    moment = self._arrivals.moment
                ahead = await self._write(answer, context, question if goes_on else None)
                self._traffic.add(question.topic, "", answer.record_count, answer.size)
                if question.is_answered:
                    return
                if ahead is not None:
                    answer = await self._settled(ahead, question)
                    continue
                if waits:
                    few = await self._arrived(question, moment, answer)
                    moment = self._arrivals.moment
                answer = await self._held(question, few=few)
                continue
            self._budget.give(answer.size)  # small, or not to be written
            if status is PullStatus.NO_MATCHED_MESSAGE and moved:
                question = question.at(answer.next_offset)
                if question.is_answered:
                    await context.write(answer.joined())
                    return
            elif pending:
                await self._catch_up.visible(pending, context)
                pending = 0
            elif not follow or status not in _MORE_MAY_COME:
                await context.write(answer.joined())  # the status that ended it, and where to go on
                return
            else:
                few = await self._arrived(question, moment, answer)
            moment = self._arrivals.moment
            answer = await self._held(question, few=few)

    async def _write(
        self, answer: Answer, context: Context, following: PullQuestion | None
    ) -> asyncio.Future[Answer] | None:
        """Write an answer of a stream; return the next one, which is prepared if there is memory for it."""
        ahead = None
        if following is not None and self._budget.try_take(following.max_bytes):
            ahead = self.run(self._ask, following)
        try:
            await context.write(await self._joined(answer))
        except BaseException:
            if following is not None and ahead is not None:
                if not ahead.cancel() and not ahead.cancelled():
                    ahead.exception()  # no other caller awaits it
                self._budget.give(following.max_bytes)
            raise
        finally:
            self._budget.give(answer.size)
        return ahead

    async def _arrived(self, question: PullQuestion, moment: Moment, answer: Answer) -> bool:
        """Return once there may be more to pull; whether it is little that has come since the moment.

        The answer was read after the moment, and met the end of the queue. Raises Draining.
        """
        if self._draining.is_set():
            raise Draining
        if await self._arrivals.wait_for_key(question.queue, moment, _FOLLOW_LOOK_SECONDS):
            return True
        return _is_little(moment.end, answer.read_at, self._arrivals.moment)

    async def _held(self, question: PullQuestion, *, few: bool = False) -> Answer:
        """Answer a pull of a stream; the budget has its bytes until the caller gives them back."""
        await self._budget.take(question.max_bytes)
        return await self._settled(self._asked(question, few=few), question)

    async def _asked(self, question: PullQuestion, *, few: bool) -> Answer:
        """Answer a pull: in a thread, but here if few records have just come, which are in memory."""
        if few and not question.decode:
            return self._ask(question)
        return await self.run(self._ask, question)

    async def _joined(self, answer: Answer) -> bytes:
        """Return a response, joined in a thread where a page of it may have to be read from disk."""
        if time.monotonic() - answer.read_at > _WARM_SECONDS:
            return await self.run(answer.joined)
        return answer.joined()

    async def _settled(self, asked: Awaitable[Answer], question: PullQuestion) -> Answer:
        """Await an answer, and give back what was taken for it and is not needed."""
        held = 0
        try:
            answer = await asked
            held = answer.size
            return answer
        finally:
            self._budget.give(question.max_bytes - held)

    def run(self, function: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Run a call of the engine off the event loop."""
        return self._loop.run_in_executor(self._executor, function, *arguments)

    def _ask(self, question: PullQuestion) -> Answer:
        def ask(max_messages: int) -> PullResult:
            return self._reader.pull(
                question.topic,
                question.queue_id,
                queue_offset=question.queue_offset,
                max_messages=max_messages,
                max_bytes=question.max_bytes,
                tag_expression=question.tag_expression,
                end_offset=question.end_offset,
            )

        decoded = None
        if question.decode:
            result, decoded = ask_decoded(ask, question.max_messages, bytes_max=question.max_bytes)
        else:
            result = ask(question.max_messages)
        return Answer(
            result.status,
            result.next_offset,
            result.next_offset >= result.max_offset,
            pull_answer(result, decoded),
            time.monotonic(),
            result.record_count if decoded is None else len(decoded),
        )


def pull_answer(result: PullResult, decoded: list[common_pb2.Record] | None) -> wire.Parts:
    """Return a serialized PullResponse in parts, with raw records if they are not decoded."""
    head = reader_pb2.PullResponse(
        status=wire.PULL_STATUS_OF[result.status],
        next_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        record_count=result.record_count,
        damaged=map(wire.damaged_record, result.damaged),
    )
    if decoded is None:
        return wire.with_records(head, result.slices)
    head.record_count = len(decoded)
    head.decoded.extend(decoded)
    return (head.SerializeToString(),)
