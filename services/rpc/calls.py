"""From a servicer's methods to handlers: parsing, interceptors, errors as statuses, the access log.

An interceptor is a coroutine function around each call, of whatever kind::

    async def count(call: InterceptedCall, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except StoreError as error:
            failures[call.method, code_of(error)] += 1
            raise

It may raise instead of proceeding, and what it raises becomes a status as a servicer's errors do; an
``AnsweredRefusal`` becomes its answer, and is counted as the refusal that it is. The
first of several is the outermost. Without interceptors a call costs nothing for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from services import logs
from services.rpc import status
from services.rpc.call_counts import WAITING_METHODS, CallCounts, MethodCounts
from services.rpc.running_settings import RunningSettings
from services.rpc.served_call import CallAborted, CallEnded, Handler, requests_of
from services.rpc.servicer import Context, Draining, is_brief, is_raw, method_of
from storage.errors import DeviceFailed, StoreError

PARSED_BYTES_MAX: Final = 3 << 20  # in one go, which takes 40 ms if all its elements are empty
_LOGGED_ELSEWHERE: Final = (
    Draining,
    status.Unauthenticated,
    status.PermissionDenied,
    status.LimitExceeded,
)
_INTERNAL: Final = "internal error; the service's log has it under this request id"


class InterceptedCall(NamedTuple):
    """One call, as interceptors see it."""

    service: str  # full name, such as penstock.v1.Writer
    method: str
    context: Context
    request: Callable[
        [], Awaitable[Message | None]
    ]  # parsed for who asks; None of a stream of requests
    answer_of: Callable[[bytes], Message]  # an answer parsed
    request_bytes: int  # 0 of a stream of requests
    is_stream: bool  # of requests or answers or both


class AnsweredRefusal(Exception):
    """An interceptor refuses a call whose clients read refusals in answers: gRPC's status is OK."""

    def __init__(self, refusal: StoreError, answer: bytes | None) -> None:
        """``answer`` is the last one, None where all are written."""
        super().__init__(str(refusal))
        self.refusal = refusal
        self.answer = answer


class Proceed(Protocol):
    """Makes the call; what reads and writes its streams may be given in the place of its own context."""

    def __call__(self, context: Context | None = None, /) -> Awaitable[Any]: ...


Interceptor = Callable[[InterceptedCall, Proceed], Awaitable[Any]]
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
    ) -> dict[str, Handler]:
        """Return the handlers of all methods of a service, by their paths.

        Requests that are parsed on the event loop have at most ``parsed_bytes_max``.
        """
        return {
            f"/{service.full_name}/{method.name}": self._handler(
                method, method_of(servicer, method.name), parsed_bytes_max
            )
            for method in service.methods
        }

    def _handler(
        self, method: MethodDescriptor, behaviour: Behaviour, parsed_bytes_max: int
    ) -> Handler:
        brief = is_brief(behaviour) and not method.client_streaming
        takes_bytes = is_raw(behaviour)
        if not takes_bytes and not method.client_streaming:
            parse = GetMessageClass(method.input_type).FromString
            behaviour = _parsing(parse, behaviour, parsed_bytes_max)
        service = method.containing_service.full_name
        for interceptor in reversed(self._interceptors):
            behaviour = _intercepted(
                interceptor,
                method,
                behaviour,
                takes_bytes=takes_bytes,
                bytes_max=parsed_bytes_max,
            )
        counts: MethodCounts | None = None
        if self._counts is not None:
            is_stream = method.client_streaming or method.server_streaming
            counts = self._counts.of(service, method.name, is_stream=is_stream)
        wraps: dict[tuple[bool, bool], Callable[[str, Behaviour, MethodCounts | None], Any]] = {
            (False, False): self._unary,
            (False, True): self._answer_stream,
            (True, False): self._request_stream,
            (True, True): self._both_stream,
        }
        wrap = wraps[method.client_streaming, method.server_streaming]
        return Handler(method.client_streaming, wrap(method.name, behaviour, counts), brief)

    def _unary(
        self, method: str, behaviour: Behaviour, counts: MethodCounts | None
    ) -> Callable[[bytes, Context], Coroutine[Any, Any, bytes]]:
        running = self._running
        slow_is_usual = method in WAITING_METHODS

        async def call(data: bytes, context: Context) -> bytes:
            started = time.perf_counter()
            if counts is not None:
                counts.under_way += 1
            try:
                answer = await behaviour(data, context)
            except AnsweredRefusal as refused:
                return self._answered(method, context, refused, counts, started) or b""
            except BaseException as error:  # noqa: BLE001  the status table decides
                await self._refuse(method, context, error, counts, started)
            seconds = time.perf_counter() - started
            if counts is not None:
                counts.end("OK", seconds)
            if running.logs_all or (seconds >= running.slow_s and not slow_is_usual):
                self._log_call(method, context, "OK", started)
            return answer if type(answer) is bytes else answer.SerializeToString()

        return call

    def _answer_stream(
        self, method: str, behaviour: Behaviour, counts: MethodCounts | None
    ) -> Callable[[bytes, Context], Coroutine[Any, Any, bytes | None]]:
        async def call(data: bytes, context: Context) -> bytes | None:
            last: bytes | None = await self._stream(
                method, context, lambda: behaviour(data, context), counts
            )
            return last

        return call

    def _request_stream(
        self, method: str, behaviour: Behaviour, counts: MethodCounts | None
    ) -> Callable[[Context], Coroutine[Any, Any, bytes]]:
        async def call(context: Context) -> bytes:
            requests = requests_of(context)
            answer = await self._stream(
                method, context, lambda: behaviour(requests, context), counts
            )
            return bytes(answer.SerializeToString())

        return call

    def _both_stream(
        self, method: str, behaviour: Behaviour, counts: MethodCounts | None
    ) -> Callable[[Context], Coroutine[Any, Any, None]]:
        async def call(context: Context) -> None:
            await self._stream(method, context, lambda: behaviour(context), counts)

        return call

    async def _stream(
        self,
        method: str,
        context: Context,
        run: Callable[[], Awaitable[Any]],
        counts: MethodCounts | None,
    ) -> Any:
        started = time.perf_counter()
        if counts is not None:
            counts.under_way += 1
        try:
            answer = await run()
        except AnsweredRefusal as refused:
            return self._answered(method, context, refused, counts, started)
        except BaseException as error:  # noqa: BLE001  the status table decides
            await self._refuse(method, context, error, counts, started)
        if counts is not None:
            counts.end("OK", time.perf_counter() - started)
        if self._running.logs_all:
            self._log_call(method, context, "OK", started)
        return answer

    async def _refuse(
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
        await context.abort(
            code,
            message,
            trailing_metadata=(
                (status.STATUS_DETAILS_KEY, whole.SerializeToString()),
                (logs.REQUEST_ID_KEY, request_id),
            ),
        )

    def _answered(
        self, method: str, context: Context, refused: AnsweredRefusal,
        counts: MethodCounts | None, started: float,
    ) -> bytes | None:  # fmt: skip
        """Count a refusal as what it is; return its answer."""
        code = status.code_of(refused.refusal).name
        if counts is not None and self._counts is not None:
            counts.end(code, time.perf_counter() - started)
            self._counts.refuse(refused.refusal)
        if self._running.logs_all:
            self._log_call(method, context, code, started)
        return refused.answer

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


def _parsing(parse: Callable[[bytes], Any], behaviour: Behaviour, bytes_max: int) -> Behaviour:
    async def call(data: bytes, context: Context) -> Any:
        return await behaviour(parsed(parse, data, bytes_max), context)

    return call


def _intercepted(
    interceptor: Interceptor,
    method: MethodDescriptor,
    behaviour: Behaviour,
    *,
    takes_bytes: bool,
    bytes_max: int,
) -> Behaviour:
    service, name = method.containing_service.full_name, method.name
    is_stream = method.client_streaming or method.server_streaming
    parse = GetMessageClass(method.input_type).FromString
    parse_answer = GetMessageClass(method.output_type).FromString

    async def call(*arguments: Any) -> Any:
        async def request() -> Message | None:
            if method.client_streaming:
                return None
            if len(arguments[0]) > bytes_max and takes_bytes:
                return await asyncio.to_thread(parse, arguments[0])
            return cast("Message", parsed(parse, arguments[0], bytes_max))

        def proceed(context: Context | None = None, /) -> Awaitable[Any]:
            if context is None:
                return behaviour(*arguments)
            if method.client_streaming and not method.server_streaming:
                return behaviour(requests_of(context), context)
            return behaviour(*arguments[:-1], context)

        about = InterceptedCall(
            service,
            name,
            arguments[-1],
            request,
            parse_answer,
            0 if method.client_streaming else len(arguments[0]),
            is_stream,
        )
        return await interceptor(about, proceed)

    return call
