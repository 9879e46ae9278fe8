"""Refusals as RocketMQ's clients read them: a status in the answer, and gRPC's status OK."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from services.rpc.calls import InterceptedCall, Interceptor, Proceed
from services.rpc.status import LimitExceeded, PermissionDenied, Unauthenticated

MESSAGING: Final = "apache.rocketmq.v2.MessagingService"
_CODES: Final[dict[type[Exception], int]] = {
    Unauthenticated: 40_100,
    PermissionDenied: 40_300,
    LimitExceeded: 42_900,
}
_STREAM_OF_REQUESTS: Final = "Telemetry"
_HANDLE: Final = "receipt_handle"  # clients keep an answer's before they look at its status


class InBand:
    """An interceptor whose refusals of RocketMQ's methods are answers."""

    def __init__(self, guard: Interceptor) -> None:
        self._guard = guard

    async def __call__(self, call: InterceptedCall, proceed: Proceed) -> Any:
        """Make a call if its caller may. Raises what the interceptor does, of all other services."""
        try:
            return await self._guard(call, proceed)
        except tuple(_CODES) as error:
            if call.service != MESSAGING:
                raise
            answer: Any = call.answer_of(b"")
            answer.status.code = _CODES[type(error)]
            answer.status.message = str(error)
            return await _answered(call, answer)


async def _answered(call: InterceptedCall, answer: Any) -> Any:
    data: bytes = answer.SerializeToString()
    if call.method == _STREAM_OF_REQUESTS:
        await call.context.write(data)
        return None
    request: Message | None = await call.request()
    if request is not None and _HANDLE in answer.DESCRIPTOR.fields_by_name:
        setattr(answer, _HANDLE, getattr(request, _HANDLE))
        data = answer.SerializeToString()
    return data
