"""One caller's acknowledgements, made as they come and answered in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.v1 import leases_pb2
from services import wire
from services.accounts.principal import check
from services.rpc import status
from services.rpc.servicer import EOF, Context, Draining
from storage.accounts.rules import Action, Resource
from storage.errors import StoreError

Acknowledge = Callable[
    [leases_pb2.AcknowledgeRequest, Context], Awaitable[leases_pb2.AcknowledgeResponse]
]


class AcknowledgeStream:
    """Serves one stream; used on the event loop."""

    def __init__(self, acknowledge: Acknowledge, context: Context, draining: asyncio.Event) -> None:
        self._acknowledge = acknowledge
        self._context = context
        self._draining = draining
        self._is_reading = False

    async def serve(self) -> None:
        """Return when the caller has ended the stream and every request is answered.

        Raises Draining when the service stops: what was made is answered.
        """
        answering = asyncio.ensure_future(self._answer_on())
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait({answering, draining}, return_when=asyncio.FIRST_COMPLETED)
            if self._is_reading:
                answering.cancel()
            await asyncio.wait({answering})
            if answering.cancelled():
                raise Draining
            answering.result()
        finally:
            answering.cancel()
            draining.cancel()

    async def _answer_on(self) -> None:
        while not self._draining.is_set():
            self._is_reading = True
            data = await self._context.read()
            self._is_reading = False
            if data is EOF:
                return
            await self._context.write(await self._answer(data))
        raise Draining

    async def _answer(self, data: bytes) -> bytes:
        request = leases_pb2.AcknowledgeRequest.FromString(data)
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
