"""From a servicer's methods to handlers: parsing, interceptors, errors as statuses, the access log.

An interceptor is a coroutine function around each call, of whatever kind::

    async def count(call: InterceptedCall, proceed: Proceed) -> Any:
        try:
            return await proceed(call)
        except StoreError as error:
            failures[call.method.name, code_of(error)] += 1
            raise

It may raise instead of proceeding, and what it raises becomes a status as a servicer's errors do, or an
answer where the clients of a contract read refusals there. The first of several is the outermost. Without
interceptors a call costs nothing for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from services import logs
from services.rpc import status
from services.rpc.call_counts import WAITING_METHODS, CallCounts, MethodCounts
from services.rpc.running_settings import RunningSettings
from services.rpc.served_call import CallAborted, CallEnded, Handler
from services.rpc.servicer import Context, Draining, is_brief, is_raw, method_of
from storage.errors import DeviceFailed, PicklableError, StoreError

PARSED_BYTES_MAX: Final = 3 << 20  # in one go, which takes 40 ms if all its elements are empty
_LOGGED_ELSEWHERE: Final = (
    Draining,
    status.Unauthenticated,
    status.PermissionDenied,
    status.LimitExceeded,
)
_INTERNAL: Final = "internal error; the service's log has it under this request id"


class CalledMethod(NamedTuple):
    """What is the same for all calls of a method."""

    service: str  # full name, such as penstock.v1.Writer
    name: str
    parse: Callable[[bytes], Message]
    parse_answer: Callable[[bytes], Message]
    takes_stream: bool
    is_stream: bool  # of requests or answers or both
    takes_bytes: bool  # its servicer parses requests
    is_brief: bool
    parsed_bytes_max: int


class InterceptedCall:
    """One call, as interceptors see it."""

    __slots__ = ("_request", "context", "data", "method", "request_bytes")

    def __init__(self, method: CalledMethod, data: bytes | None, context: Context) -> None:
        """``data`` are the bytes of the request, None of a stream of requests."""
        self.method = method
        self.data = data
        self.request_bytes = 0 if data is None else len(data)
        self.context = context  # an interceptor may put another one there
        self._request: Message | None = None

    async def request(self) -> Message | None:
        """Return the request parsed, None of a stream of requests. Raises InvalidArgument, DecodeError."""
        if self._request is None and self.data is not None:
            method = self.method
            if method.takes_bytes and len(self.data) > method.parsed_bytes_max:
                return await asyncio.to_thread(method.parse, self.data)
            self._request = parsed(method.parse, self.data, method.parsed_bytes_max)
        return self._request

    def take_request(self) -> Message:
        """Return the request parsed, for its servicer, which may change it. Raises as ``request`` does."""
        request, self._request = self._request, None
        assert self.data is not None
        return request or parsed(self.method.parse, self.data, self.method.parsed_bytes_max)


class InBandRefusal(PicklableError):
    """A refusal that is an answer like any other: gRPC's status is OK, and the call counts as such."""


RefusalAnswer = Callable[[CalledMethod, bytes | None, BaseException], bytes | None]
"""Returns the answer to a request in which clients read a refusal, None for an error that is a status."""


Proceed = Callable[[InterceptedCall], Awaitable[Any]]


class Interceptor(Protocol):
    """What is around each call."""

    def __call__(self, call: InterceptedCall, proceed: Proceed) -> Awaitable[Any]:
        """Make the call by ``proceed(call)``, or raise."""
        ...


Behaviour = Callable[..., Awaitable[Any]]


class CallHandlers:
    """Makes the handlers of a servicer's methods."""

    def __init__(
        self,
        *,
        running: RunningSettings,
        interceptors: Sequence[Interceptor] = (),
        counts: CallCounts | None = None,
    ) -> None:
        """Calls are counted where there are ``counts``."""
        self._counts = counts
        self._running = running
        self._interceptors = tuple(interceptors)
        self._log = logs.get_logger()

    def of_service(
        self,
        service: ServiceDescriptor,
        servicer: Any,
        *,
        parsed_bytes_max: int = PARSED_BYTES_MAX,
        refusal_answer: RefusalAnswer | None = None,
    ) -> dict[str, Handler]:
        """Return the handlers of all methods of a service, by their paths.

        Requests that are parsed on the event loop have at most ``parsed_bytes_max``.
        """
        return {
            f"/{service.full_name}/{method.name}": self._handler(
                method, method_of(servicer, method.name), parsed_bytes_max, refusal_answer
            )
            for method in service.methods
        }

    def _handler(
        self,
        method: MethodDescriptor,
        behaviour: Behaviour,
        parsed_bytes_max: int,
        refusal_answer: RefusalAnswer | None,
    ) -> Handler:
        called = CalledMethod(
            service=method.containing_service.full_name,
            name=method.name,
            parse=GetMessageClass(method.input_type).FromString,
            parse_answer=GetMessageClass(method.output_type).FromString,
            takes_stream=method.client_streaming,
            is_stream=method.client_streaming or method.server_streaming,
            takes_bytes=is_raw(behaviour),
            is_brief=is_brief(behaviour) and not method.client_streaming,
            parsed_bytes_max=parsed_bytes_max,
        )
        behaviour = _served(called, behaviour, self._interceptors)
        counts: MethodCounts | None = None
        if self._counts is not None:
            counts = self._counts.of(called.service, called.name, is_stream=called.is_stream)
        behaviour = self._counted(called, behaviour, counts, refusal_answer)
        return Handler(called.takes_stream, behaviour, called.is_brief)

    def _counted(
        self,
        method: CalledMethod,
        behaviour: Behaviour,
        counts: MethodCounts | None,
        refusal_answer: RefusalAnswer | None,
    ) -> Callable[..., Coroutine[Any, Any, bytes | None]]:
        """Return what serves a call, counts and logs it and makes statuses or answers of what is raised."""
        name, running = method.name, self._running
        slow_is_usual = method.is_stream or name in WAITING_METHODS

        async def call(*arguments: Any) -> bytes | None:
            started = time.perf_counter()
            context = arguments[-1]
            code = "OK"
            if counts is not None:
                counts.under_way += 1
            try:
                answer = await behaviour(*arguments)
            except BaseException as error:  # noqa: BLE001  the status table decides
                answer = None
                if refusal_answer is not None:
                    request = None if method.takes_stream else arguments[0]
                    answer = refusal_answer(method, request, error)
                if answer is None:
                    self._refuse(name, context, error, counts, started)
                if isinstance(error, StoreError):
                    code = status.code_of(error).name
                    if self._counts is not None:
                        self._counts.refuse(error)
            seconds = time.perf_counter() - started
            if counts is not None:
                counts.end(code, seconds)
            if running.logs_all or (seconds >= running.slow_s and not slow_is_usual):
                self._log_call(name, context, code, started)
            return answer.SerializeToString() if isinstance(answer, Message) else answer

        return call

    def _refuse(
        self, method: str, context: Context, error: BaseException,
        counts: MethodCounts | None, started: float,
    ) -> NoReturn:  # fmt: skip
        """End a call with the status of what it raised; unexpected errors show no internals."""
        seconds = time.perf_counter() - started
        if isinstance(error, CallAborted | CallEnded) or not isinstance(error, Exception):
            if counts is not None:
                counts.end("CANCELLED", seconds)
            raise error
        request_id = logs.request_id(context.invocation_metadata())
        if isinstance(error, DecodeError):
            error = status.InvalidArgument("request", f"the bytes are not a request of {method}")
        error = status.store_error(error)
        if isinstance(error, StoreError):
            whole = status.status_of(error, request_id)
            code, message = status.code_of(error), str(error)
            error.__traceback__ = None  # one that is raised again and again would keep every frame
            about = {"code": code.name, "request_id": request_id, "problem": message}
            if isinstance(error, DeviceFailed):
                self._log.error("call failed", method=method, peer=context.peer(), **about)
            elif self._running.logs_all or (
                self._running.logs_refusals and not isinstance(error, _LOGGED_ELSEWHERE)
            ):
                self._log.info("call", method=method, peer=context.peer(), **about)
        else:
            code, message = grpc.StatusCode.INTERNAL, _INTERNAL
            whole = status.internal(message, request_id)
            self._log.error(
                "call failed",
                method=method,
                request_id=request_id,
                peer=context.peer(),
                exc_info=error,
            )
        if counts is not None and self._counts is not None:
            counts.end(code.name, seconds)
            self._counts.refuse(error)
        details = (status.STATUS_DETAILS_KEY, whole.SerializeToString())
        raise CallAborted(code, message, (details, (logs.REQUEST_ID_KEY, request_id))) from None

    def _log_call(self, method: str, context: Context, code: str, started: float) -> None:
        self._log.info(
            "call",
            method=method,
            code=code,
            peer=context.peer(),
            request_id=logs.request_id(context.invocation_metadata()),
            duration_ms=round((time.perf_counter() - started) * 1e3, 3),
        )


def parsed(parse: Callable[[bytes], Any], data: bytes, bytes_max: int) -> Any:
    """Return a request parsed on the event loop. Raises InvalidArgument above ``bytes_max``, DecodeError."""
    if len(data) > bytes_max:
        raise status.InvalidArgument(
            "request", f"has {len(data)} bytes; the most of this method is {bytes_max}"
        )
    return parse(data)


def _served(
    method: CalledMethod, behaviour: Behaviour, interceptors: Sequence[Interceptor]
) -> Behaviour:
    """Return what serves a call as a servicer's method does, within the interceptors.

    It takes the request's bytes and the call, or the call alone where requests are a stream.
    """
    if not interceptors:
        if method.takes_stream or method.takes_bytes:
            return behaviour
        parse, bytes_max = method.parse, method.parsed_bytes_max
        return lambda data, context: behaviour(parsed(parse, data, bytes_max), context)

    def make(call: InterceptedCall) -> Awaitable[Any]:
        if method.takes_stream:
            return behaviour(call.context)
        request = call.data if method.takes_bytes else call.take_request()
        return behaviour(request, call.context)

    proceed: Proceed = make
    for interceptor in reversed(interceptors):
        proceed = partial(interceptor, proceed=proceed)
    if method.takes_stream:
        return lambda context: proceed(InterceptedCall(method, None, context))
    return lambda data, context: proceed(InterceptedCall(method, data, context))
