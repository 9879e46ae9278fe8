"""From a servicer's methods to handlers: parsing, interceptors, errors as statuses, the access log.

An interceptor is a coroutine function around each call, of whatever kind::

    async def count(call: InterceptedCall, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except StoreError as error:
            failures[call.method, code_of(error)] += 1
            raise

It may raise instead of proceeding, and what it raises becomes a status as a servicer's errors do. The
first of several is the outermost. Without interceptors a call costs nothing for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, NoReturn, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from services import logs
from services.rpc import status
from services.rpc.served_call import CallAborted, CallEnded, Handler, requests_of
from services.rpc.servicer import Context, Draining, is_brief, is_raw, method_of
from storage.errors import DeviceFailed, StoreError

PARSED_BYTES_MAX: Final = 3 << 20  # in one go, which takes 40 ms if all its elements are empty
_LOGGED_ELSEWHERE: Final = (Draining, status.Unauthenticated, status.PermissionDenied)
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


Proceed = Callable[[], Awaitable[Any]]
Interceptor = Callable[[InterceptedCall, Proceed], Awaitable[Any]]
Behaviour = Callable[..., Awaitable[Any]]


class CallHandlers:
    """Makes the handlers of a servicer's methods."""

    def __init__(self, *, access_log: str, interceptors: Sequence[Interceptor] = ()) -> None:
        self._logs_all = access_log == "all"
        self._logs_refusals = access_log != "none"
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
        for interceptor in reversed(self._interceptors):
            behaviour = _intercepted(
                interceptor,
                method,
                behaviour,
                takes_bytes=takes_bytes,
                bytes_max=parsed_bytes_max,
            )
        wraps: dict[tuple[bool, bool], Callable[[str, Behaviour], Any]] = {
            (False, False): self._unary,
            (False, True): self._answer_stream,
            (True, False): self._request_stream,
            (True, True): self._both_stream,
        }
        wrap = wraps[method.client_streaming, method.server_streaming]
        return Handler(method.client_streaming, wrap(method.name, behaviour), brief)

    def _unary(
        self, method: str, behaviour: Behaviour
    ) -> Callable[[bytes, Context], Coroutine[Any, Any, bytes]]:
        logs_all = self._logs_all

        async def call(data: bytes, context: Context) -> bytes:
            started = time.perf_counter() if logs_all else 0.0
            try:
                answer = await behaviour(data, context)
            except BaseException as error:  # noqa: BLE001  the status table decides
                await self._refuse(method, context, error)
            if logs_all:
                self._log_call(method, context, "OK", started)
            return answer if type(answer) is bytes else answer.SerializeToString()

        return call

    def _answer_stream(
        self, method: str, behaviour: Behaviour
    ) -> Callable[[bytes, Context], Coroutine[Any, Any, bytes | None]]:
        async def call(data: bytes, context: Context) -> bytes | None:
            last: bytes | None = await self._stream(
                method, context, lambda: behaviour(data, context)
            )
            return last

        return call

    def _request_stream(
        self, method: str, behaviour: Behaviour
    ) -> Callable[[Context], Coroutine[Any, Any, bytes]]:
        async def call(context: Context) -> bytes:
            requests = requests_of(context)
            answer = await self._stream(method, context, lambda: behaviour(requests, context))
            return bytes(answer.SerializeToString())

        return call

    def _both_stream(
        self, method: str, behaviour: Behaviour
    ) -> Callable[[Context], Coroutine[Any, Any, None]]:
        async def call(context: Context) -> None:
            await self._stream(method, context, lambda: behaviour(context))

        return call

    async def _stream(self, method: str, context: Context, run: Proceed) -> Any:
        started = time.perf_counter()
        try:
            answer = await run()
        except BaseException as error:  # noqa: BLE001  the status table decides
            await self._refuse(method, context, error)
        if self._logs_all:
            self._log_call(method, context, "OK", started)
        return answer

    async def _refuse(self, method: str, context: Context, error: BaseException) -> NoReturn:
        """End a call with the status of what it raised; unexpected errors show no internals."""
        if isinstance(error, CallAborted | CallEnded) or not isinstance(error, Exception):
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
            elif self._logs_all or (
                self._logs_refusals and not isinstance(error, _LOGGED_ELSEWHERE)
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
        await context.abort(
            code,
            message,
            trailing_metadata=(
                (status.STATUS_DETAILS_KEY, whole.SerializeToString()),
                (logs.REQUEST_ID_KEY, request_id),
            ),
        )

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
    parse = GetMessageClass(method.input_type).FromString
    parse_answer = GetMessageClass(method.output_type).FromString

    async def call(*arguments: Any) -> Any:
        async def request() -> Message | None:
            if method.client_streaming:
                return None
            if len(arguments[0]) > bytes_max and takes_bytes:
                return await asyncio.to_thread(parse, arguments[0])
            return cast("Message", parsed(parse, arguments[0], bytes_max))

        about = InterceptedCall(service, name, arguments[-1], request, parse_answer)
        return await interceptor(about, lambda: behaviour(*arguments))

    return call
