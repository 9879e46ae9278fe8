"""The gRPC server under each service: its limits, health, reflection, errors, logs and drain.

A servicer is an object with one coroutine a method of its service descriptor, in snake case. It
gets parsed requests and returns messages, or takes and returns bytes where it is marked ``raw``.
What it raises becomes a status here, so it never handles errors.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from services import logs, status
from services.health import Health
from services.listening import CannotListen
from services.settings import ProcessSettings
from storage.errors import StoreClosed, StoreError
from storage.files import open_files

Context = grpc.aio.ServicerContext[Any, Any]
EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs miss it
_F = TypeVar("_F", bound=Callable[..., Any])
_RAW: Final = "_takes_raw_bytes"
CANCEL_SECONDS: Final = 1.0  # from a failed write until gRPC cancels the call whose caller has gone
_INTERNAL: Final = "internal error; the service's log has it under this request id"


def raw(method: _F) -> _F:
    """Mark a servicer's method as taking the request's bytes instead of a message."""
    setattr(method, _RAW, True)
    return method


class RpcServer:
    """One grpc.aio server with the manners that all services share."""

    def __init__(
        self,
        service: ServiceDescriptor,
        servicer: Any,
        settings: ProcessSettings,
        draining: asyncio.Event,
    ) -> None:
        self._draining = draining
        self._health = Health(("", service.full_name))
        self._settings = settings
        self._log = logs.get_logger()
        self._server = grpc.aio.server(
            options=server_options(settings), maximum_concurrent_rpcs=settings.concurrent_calls_max
        )
        handlers = {
            method.name: self._handler(method, getattr(servicer, _snake(method.name)))
            for method in service.methods
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.full_name, handlers),)
        )
        by_name = _ByName(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, by_name)
        names = (service.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection.aio.ReflectionServicer(names),  # type: ignore[attr-defined]
            by_name,
        )
        self._serving: bool | None = None

    async def start(self, listen: str) -> str:
        """Begin to serve, health NOT_SERVING until told otherwise; return HOST:PORT as bound."""
        host = listen.rpartition(":")[0]
        self.set_serving(serving=False)
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise CannotListen(listen) from error
        await self._server.start()
        address = f"{host}:{port}"
        self._log.info("listening", address=address, tls=False)
        if not _is_loopback(host):
            self._log.warning(
                "open to the network without TLS or accounts: whoever reaches this address may use it",
                address=address,
            )
        return address

    def set_serving(self, *, serving: bool) -> None:
        """Set the health of the service and of the whole server."""
        if serving == self._serving or self._draining.is_set():
            return
        self._serving = serving
        self._health.set(serving=serving)
        self._log.info("health", serving=serving)

    async def drain(self) -> None:
        """Take no new calls, let those under way end within the grace, then cancel them."""
        self._draining.set()
        self._log.info("draining", grace_seconds=self._settings.drain_grace_seconds)
        self._health.end()
        await self._server.stop(self._settings.drain_grace_seconds)

    def _handler(self, method: MethodDescriptor, behaviour: Any) -> Any:
        parse = (
            None
            if getattr(behaviour, _RAW, False)
            else GetMessageClass(method.input_type).FromString
        )
        kinds: dict[tuple[bool, bool], tuple[Any, Any]] = {
            (False, False): (self._unary, grpc.unary_unary_rpc_method_handler),
            (False, True): (self._answer_stream, grpc.unary_stream_rpc_method_handler),
            (True, False): (self._request_stream, grpc.stream_unary_rpc_method_handler),
            (True, True): (self._both_stream, grpc.stream_stream_rpc_method_handler),
        }
        wrap, handler = kinds[method.client_streaming, method.server_streaming]
        return handler(wrap(method.name, behaviour, parse))

    def _unary(
        self, name: str, behaviour: Any, parse: Any
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        logs_all = self._settings.access_log == "all"

        async def call(data: bytes, context: Context) -> bytes:
            started = time.perf_counter() if logs_all else 0.0
            try:
                answer = await behaviour(parse(data) if parse else data, context)
            except BaseException as error:  # noqa: BLE001  the status table decides
                await self._refuse(name, context, error)
            if logs_all:
                self._log_call(name, context, "OK", started)
            return answer if type(answer) is bytes else answer.SerializeToString()

        return call

    def _answer_stream(
        self, name: str, behaviour: Any, parse: Any
    ) -> Callable[[bytes, Context], Awaitable[None]]:
        async def call(data: bytes, context: Context) -> None:
            await self._stream(
                name, context, lambda: behaviour(parse(data) if parse else data, context)
            )

        return call

    def _request_stream(
        self, name: str, behaviour: Any, _parse: Any
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        async def call(requests: AsyncIterator[bytes], context: Context) -> bytes:
            answers: list[bytes] = []

            async def answer() -> None:
                answers.append((await behaviour(requests, context)).SerializeToString())

            await self._stream(name, context, answer)
            return answers[0]

        return call

    def _both_stream(
        self, name: str, behaviour: Any, _parse: Any
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
        async def call(_requests: AsyncIterator[bytes], context: Context) -> None:
            await self._stream(name, context, lambda: behaviour(context))

        return call

    async def _stream(
        self, name: str, context: Context, run: Callable[[], Awaitable[None]]
    ) -> None:
        started = time.perf_counter()
        try:
            await run()
        except BaseException as error:  # noqa: BLE001  the status table decides
            await self._refuse(name, context, error)
        if self._settings.access_log == "all":
            self._log_call(name, context, "OK", started)

    async def _refuse(self, name: str, context: Context, error: BaseException) -> NoReturn:
        """End a call with the status of what it raised; unexpected errors show no internals."""
        if isinstance(error, grpc.aio.AbortError | asyncio.CancelledError) or not isinstance(
            error, Exception
        ):
            raise error
        request_id = logs.request_id(context.invocation_metadata())
        if isinstance(error, grpc.aio.InternalError):
            await asyncio.sleep(CANCEL_SECONDS)  # raises CancelledError, unless the caller is there
        if isinstance(error, DecodeError):
            error = status.InvalidArgument("request", f"the bytes are not a request of {name}")
        if isinstance(error, StoreError):
            whole = status.status_of(error, request_id)
            code, message = status.code_of(error), str(error)
            error.__traceback__ = None  # one that is raised again and again would keep every frame
            if self._settings.access_log != "none":
                self._log_call(
                    name, context, code.name, None, request_id=request_id, problem=message
                )
        else:
            code, message = grpc.StatusCode.INTERNAL, _INTERNAL
            whole = status.internal(message, request_id)
            self._log.error(
                "call failed",
                method=name,
                request_id=request_id,
                peer=context.peer(),
                exc_info=error,
            )
        try:
            await context.abort(
                code,
                message,
                trailing_metadata=(
                    (status.STATUS_DETAILS_KEY, whole.SerializeToString()),
                    (logs.REQUEST_ID_KEY, request_id),
                ),
            )
        except grpc.aio.InternalError as gone:
            raise asyncio.CancelledError from gone  # nobody is left to be told

    def _log_call(
        self, name: str, context: Context, code: str, started: float | None, **fields: Any
    ) -> None:
        fields.setdefault("request_id", logs.request_id(context.invocation_metadata()))
        if started is not None:
            fields["duration_ms"] = round((time.perf_counter() - started) * 1e3, 3)
        self._log.info("call", method=name, code=code, peer=context.peer(), **fields)


class _ByName:
    """A server that generated code may add handlers to, to be found by name when a call comes.

    Generated code registers each method too, and for those grpc.aio waits anew, one by one, whenever
    any call has come: microseconds of every call, for methods that are hardly ever called.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Do without."""


class Draining(StoreClosed):
    """The service is stopping; another one, or this one after its restart, will take the call."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; try again")


def server_options(settings: ProcessSettings) -> list[tuple[str, int]]:
    """Return the channel arguments: limits of sizes, connections, pings and time."""
    keepalive_ms = int(settings.keepalive_seconds * 1e3)
    return [
        ("grpc.so_reuseport", 0),  # a second service on the same address is an error, not a lottery
        ("grpc.max_receive_message_length", int(settings.message_bytes_max)),
        ("grpc.max_send_message_length", -1),
        (
            "grpc.max_allowed_incoming_connections",
            open_files.at_most(settings.connections_max, share=2),
        ),
        ("grpc.max_concurrent_streams", settings.concurrent_calls_max),
        ("grpc.max_connection_idle_ms", int(settings.connection_idle_seconds * 1e3)),
        ("grpc.server_handshake_timeout_ms", int(settings.handshake_timeout_seconds * 1e3)),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", min(keepalive_ms, 10_000)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 4),
        ("grpc.http2.ping_on_rst_stream_percent", 1),
        ("grpc.http2.lookahead_bytes", 4 << 20),
        ("grpc.http2.max_frame_size", 1 << 20),
    ]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
