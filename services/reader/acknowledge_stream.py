"""One caller's acknowledgements, made as they come and answered in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.v1 import leases_pb2
from services import wire
from services.accounts.principal import check
from services.loops import retrieve
from services.rpc import status
from services.rpc.frame_stream import FrameStream
from services.rpc.servicer import Context
from storage.accounts.rules import Action, Resource
from storage.errors import StoreError

Acknowledge = Callable[
    [leases_pb2.AcknowledgeRequest, Context], Awaitable[leases_pb2.AcknowledgeResponse]
]
IN_FLIGHT_MAX: Final = 64  # requests of a stream that are not answered


class AcknowledgeStream(FrameStream["asyncio.Task[bytes]"]):
    """Makes requests in their order, each in a task; used on the event loop."""

    def __init__(self, acknowledge: Acknowledge, context: Context, draining: asyncio.Event) -> None:
        super().__init__(context, draining, in_flight_max=IN_FLIGHT_MAX)
        self._acknowledge = acknowledge

    def _take(self, frame: bytes) -> None:
        making = asyncio.ensure_future(self._made(frame))
        making.add_done_callback(retrieve)  # of a stream that broke
        self._put(making)

    async def _known(self, outcome: asyncio.Task[bytes]) -> None:
        await asyncio.wait({outcome})

    def _answer_of(self, outcome: asyncio.Task[bytes]) -> bytes | None:
        return outcome.result() if outcome.done() else None

    async def _made(self, frame: bytes) -> bytes:
        request = leases_pb2.AcknowledgeRequest.FromString(frame)
        try:
            check(Resource.topic(request.topic), Action.SUB)
            check(Resource.group(request.group), Action.SUB)
            done = await self._acknowledge(request, self._context)
            answer = leases_pb2.AcknowledgeStreamResponse(done=done)
        except (StoreError, OSError) as error:
            refusal = status.refusal_of_frame(error, self._context.peer())
            if not isinstance(refusal, StoreError):
                raise
            answer = leases_pb2.AcknowledgeStreamResponse(failure=wire.failure_of(refusal))
        return answer.SerializeToString()
