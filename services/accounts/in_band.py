"""Refusals as RocketMQ's clients read them: a status in the answer, and gRPC's status OK."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from services.rpc.calls import AnsweredRefusal, InterceptedCall, Interceptor, Proceed
from services.rpc.servicer import Context
from services.rpc.status import LimitExceeded, PermissionDenied, Unauthenticated
from storage.errors import StoreError

MESSAGING: Final = "apache.rocketmq.v2.MessagingService"
_CODES: Final[dict[type[StoreError], int]] = {
    Unauthenticated: 40_100,
    PermissionDenied: 40_300,
    LimitExceeded: 42_900,
}
_STREAM_OF_REQUESTS: Final = "Telemetry"
_HANDLE: Final = "receipt_handle"  # clients keep an answer's before they look at its status
_HANDLE_REQUEST_BYTES_MAX: Final = (
    16 << 10
)  # longer requests are of no client: nothing of them is read


class InBand:
    """An interceptor whose refusals of RocketMQ's methods are answers."""

    def __init__(self, guard: Interceptor) -> None:
        self._guard = guard

    def __call__(self, call: InterceptedCall, proceed: Proceed) -> Awaitable[Any]:
        """Make a call if its caller may. Raises AnsweredRefusal, of all other services what the interceptor does."""
        guarded = self._guard(call, proceed)
        return _answering(call, guarded) if call.method.service == MESSAGING else guarded


async def _answering(call: InterceptedCall, guarded: Awaitable[Any]) -> Any:
    context = call.context  # a refusal does not wait for its turn among what limits hold back
    try:
        return await guarded
    except tuple(_CODES) as error:
        answer: Any = call.method.parse_answer(b"")
        answer.status.code = _CODES[type(error)]
        answer.status.message = str(error)
        raise AnsweredRefusal(error, await _answered(call, context, answer)) from None


async def _answered(call: InterceptedCall, context: Context, answer: Any) -> bytes | None:
    if call.method.name == _STREAM_OF_REQUESTS:
        await context.write(answer.SerializeToString())
        return None
    has_handle = _HANDLE in answer.DESCRIPTOR.fields_by_name
    if has_handle and call.request_bytes <= _HANDLE_REQUEST_BYTES_MAX:
        setattr(answer, _HANDLE, getattr(await call.request(), _HANDLE))
    data: bytes = answer.SerializeToString()
    return data
