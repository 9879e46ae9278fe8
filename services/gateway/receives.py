"""Receives, acknowledgements and what else is about leases, asked of the reader."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from google.protobuf.duration_pb2 import Duration

from penstock.v1 import leases_pb2
from services.gateway.handle_calls import LEASES, HandleCall, HandleCalls
from services.gateway.messages import names
from services.gateway.messages.delivered_messages import answers_of
from services.gateway.messages.statuses import OK, CallRefused
from services.gateway.messages.times import fill
from services.gateway.poll_lines import PollLines
from services.gateway.retries import answered_until
from services.gateway.sessions import Caller, Sessions, caller_of, seconds_left
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.loops import retrieve
from services.rpc.servicer import Context
from services.upstream import CalledService

BATCH_MAX: Final = 32
BATCH_BYTES_MAX: Final = 8 << 20
INVISIBLE_MS_MIN: Final = 10_000
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
WAIT_SECONDS_MAX: Final = 60.0
ENTRIES_MAX: Final = 4_096
GIVEN_BACK_MS: Final = 1_000  # until a message is delivered again that its client did not wait for
_CALL_SECONDS: Final = 10.0
_SEE_THE_ENTRIES: Final = v2.Status(code=v2.MULTIPLE_RESULTS, message="see the entries")
_BEGIN: Final = service_pb2.ReceiveMessageResponse(status=OK).SerializeToString()
_NOTHING: Final = service_pb2.ReceiveMessageResponse(
    status=v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no message came in time")
).SerializeToString()


class Receiving:
    """Translates calls about leases; the reader decides."""

    def __init__(
        self,
        reader: CalledService,
        waiting: CalledService,
        sessions: Sessions,
        *,
        push_lease_ms: int,
    ) -> None:
        self._waiting = waiting
        self._handles = HandleCalls(reader)
        self._sessions = sessions
        self._push_lease_ms = push_lease_ms
        self._polling: dict[asyncio.Task[None], Caller] = {}
        self._lines = PollLines()
        self._giving_back: set[asyncio.Task[v2.Status]] = set()
        self._loop = asyncio.get_running_loop()

    async def receive(self, request: service_pb2.ReceiveMessageRequest, context: Context) -> bytes:
        """Write the messages of one receive, or that there are none; return the last answer. Raises CallRefused."""
        caller = caller_of(context)
        asked = self._asked(request, caller, context)
        answer = await self._ask_until_ended(asked, caller, context)
        try:
            await context.write_all(_answers(answer, request.message_queue.topic))
        except BaseException:  # the client has gone, and takes nothing of an answer without its end
            self._give_back(asked, answer)
            raise
        end = service_pb2.ReceiveMessageResponse()
        fill(end.delivery_timestamp, time.time_ns() // 1_000_000)
        return end.SerializeToString()

    def _asked(
        self, request: service_pb2.ReceiveMessageRequest, caller: Caller, context: Context
    ) -> leases_pb2.ReceiveRequest:
        queue = request.message_queue
        if request.auto_renew:
            lease_ms = self._push_lease_ms
            self._sessions.heard(caller.needs_id(), caller.user).renews = True
        else:
            lease_ms = _milliseconds(request.invisible_duration, INVISIBLE_MS_MIN)
        asked = leases_pb2.ReceiveRequest(
            group=names.group_of(request.group),
            topic=names.topic_of(queue.topic),
            max_messages=max(1, min(request.batch_size, BATCH_MAX)),
            max_bytes=BATCH_BYTES_MAX,
            lease_ms=lease_ms,
            wait_ms=_wait_ms(request, context),
            auto_renew=request.auto_renew,
            client_id=self._sessions.owner_of(caller.client_id),
            attempt_id=request.attempt_id,
        )
        expression = request.filter_expression
        if expression.type == v2.SQL:
            asked.sql_expression = expression.expression
        elif expression.type in (v2.TAG, v2.FILTER_TYPE_UNSPECIFIED):
            asked.tag_expression = expression.expression
        else:
            raise CallRefused(
                v2.ILLEGAL_FILTER_EXPRESSION, f"filter type {expression.type} is not known"
            )
        return asked

    async def _ask_until_ended(
        self, asked: leases_pb2.ReceiveRequest, caller: Caller, context: Context
    ) -> leases_pb2.ReceiveResponse:
        task = asyncio.current_task()
        assert task is not None
        self._polling[task] = caller
        try:
            return await self._ask_in_line(asked, context)
        except asyncio.CancelledError:
            if task in self._polling:
                raise  # the client has gone
            task.uncancel()
            return leases_pb2.ReceiveResponse()
        finally:
            self._polling.pop(task, None)

    def drain(self) -> None:
        """Answer the polls that wait with nothing: they would hold up the stop.

        What the reader answers at this very moment comes again when its lease ends.
        """
        self._end_polls(list(self._polling))

    def client_leaves(self, caller: Caller) -> None:
        """Answer the polls of a client with nothing: it would leave the messages that come."""
        self._end_polls([task for task, each in self._polling.items() if each.is_same(caller)])

    def _end_polls(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            del self._polling[task]
            task.cancel()

    async def _ask_in_line(
        self, asked: leases_pb2.ReceiveRequest, context: Context
    ) -> leases_pb2.ReceiveResponse:
        kind = asked.group, asked.topic, asked.tag_expression, asked.sql_expression
        until = self._loop.time() + asked.wait_ms / 1e3

        async def ask() -> leases_pb2.ReceiveResponse:
            asked.wait_ms = max(0, math.ceil((until - self._loop.time()) * 1e3))
            return await self._ask(asked, context)

        answer = await self._lines.ask(kind, until, ask)
        return leases_pb2.ReceiveResponse() if answer is None else answer

    async def _ask(
        self, asked: leases_pb2.ReceiveRequest, context: Context
    ) -> leases_pb2.ReceiveResponse:
        until = self._loop.time() + seconds_left(context, WAIT_SECONDS_MAX + _CALL_SECONDS)

        def call(left: float) -> Awaitable[bytes]:
            asked.wait_ms = min(asked.wait_ms, max(0, math.ceil(left * 1e3)))
            return self._waiting.call(
                f"{LEASES}Receive",
                asked,
                timeout_s=left,
                unwanted=lambda data: self._give_back(
                    asked, leases_pb2.ReceiveResponse.FromString(data)
                ),
            )

        answer, _ = await answered_until(until, call)
        return leases_pb2.ReceiveResponse.FromString(answer)

    def _give_back(
        self, asked: leases_pb2.ReceiveRequest, answer: leases_pb2.ReceiveResponse
    ) -> None:
        """Have messages that did not reach their client delivered to whoever asks next."""
        call = HandleCall("ChangeLeases", asked.group, asked.topic, GIVEN_BACK_MS)
        for handle in handles_of(answer):
            task = self._loop.create_task(self._handles.status_of(call, handle))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)
            task.add_done_callback(retrieve)  # what is not given back comes when its lease ends

    async def acknowledge(
        self, request: service_pb2.AckMessageRequest
    ) -> service_pb2.AckMessageResponse:
        """Acknowledge each entry; the answer's own status is theirs, or says that they differ."""
        group, topic = names.group_of(request.group), names.topic_of(request.topic)
        if not 0 < len(request.entries) <= ENTRIES_MAX:
            raise CallRefused(v2.BAD_REQUEST, f"{len(request.entries)} entries")
        handles = [entry.receipt_handle for entry in request.entries]
        call = HandleCall("Acknowledge", group, topic)
        statuses = await self._handles.statuses_of(call, handles)
        answer = service_pb2.AckMessageResponse()
        for entry, status in zip(request.entries, statuses, strict=True):
            answer.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
            )
        is_same = all(status.code == statuses[0].code for status in statuses)
        answer.status.CopyFrom(statuses[0] if is_same else _SEE_THE_ENTRIES)
        return answer

    async def change(self, request: service_pb2.ChangeInvisibleDurationRequest) -> None:
        """Set when a message is delivered again, from now on. Raises CallRefused."""
        group, topic = names.group_of(request.group), names.topic_of(request.topic)
        duration_ms = _milliseconds(request.invisible_duration, 0)
        call = HandleCall("ChangeLeases", group, topic, duration_ms)
        await self._of_one(call, request.receipt_handle)

    async def dead_letter(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest
    ) -> None:
        """Keep a message as a dead letter. Raises CallRefused."""
        group, topic = names.group_of(request.group), names.topic_of(request.topic)
        await self._of_one(HandleCall("DeadLetter", group, topic), request.receipt_handle)

    async def _of_one(self, call: HandleCall, handle: str) -> None:
        status = await self._handles.status_of(call, handle)
        if status.code != v2.OK:
            raise CallRefused(status.code, status.message)


def handles_of(answer: leases_pb2.ReceiveResponse) -> list[str]:
    """Return the handle of each message of an answer."""
    joined = answer.receipt_handles.decode()
    width = len(joined) // max(answer.record_count, 1) or 1
    return [joined[at : at + width] for at in range(0, len(joined), width)]


def _answers(answer: leases_pb2.ReceiveResponse, topic: v2.Resource) -> Iterator[bytes]:
    if answer.record_count:
        yield _BEGIN
        yield from answers_of(answer, topic)
    else:
        yield _NOTHING


def _milliseconds(duration: Duration, least: int) -> int:
    milliseconds = duration.seconds * 1_000 + duration.nanos // 1_000_000
    if not least <= milliseconds <= INVISIBLE_MS_MAX:
        raise CallRefused(
            v2.ILLEGAL_INVISIBLE_TIME,
            f"the invisible duration is {milliseconds} ms; it is from {least} to {INVISIBLE_MS_MAX}",
        )
    return milliseconds


def _wait_ms(request: service_pb2.ReceiveMessageRequest, context: Context) -> int:
    """Return how long to wait for a message: as asked, and so that the answer comes in time."""
    left = seconds_left(context, WAIT_SECONDS_MAX)
    if left <= 0:
        raise CallRefused(v2.ILLEGAL_POLLING_TIME, "the deadline leaves no time to look")
    if request.HasField("long_polling_timeout"):
        polling = request.long_polling_timeout
        left = min(left, max(0.0, polling.seconds + polling.nanos / 1e9))
    return int(left * 1_000)
