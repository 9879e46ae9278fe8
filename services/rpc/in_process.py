"""Contracts called in the process that serves them: what a channel is for the services of another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, cast

import grpc
from google.protobuf.message import Message

from services import logs
from services.loops import retrieve
from services.rpc import status
from services.rpc.server import Contract
from services.rpc.servicer import Context, is_raw, method_of
from storage.errors import DeviceFailed, StoreError

_NOT_IN_TIME: Final = "the call was not answered in time"


class InProcessContext:
    """What a servicer may ask of a call that came from its own process."""

    ends_late = False  # as ServedCall has it

    def __init__(self, until: float | None) -> None:
        self._until = until
        self._loop = asyncio.get_running_loop()

    def time_remaining(self) -> float | None:
        """Return the seconds until nobody waits for the answer, None if somebody always does."""
        return None if self._until is None else max(0.0, self._until - self._loop.time())

    def peer(self) -> str:
        """Return a peer without an address."""
        return "in-process"

    def invocation_metadata(self) -> tuple[()]:
        """Return nothing: such a call has no metadata."""
        return ()

    async def send_initial_metadata(self, _metadata: object) -> None:
        """Do nothing: nobody waits for it."""


class InProcessStream(InProcessContext):
    """The same of a method that streams its answers."""

    def __init__(self) -> None:
        super().__init__(None)
        self.answers: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: the last one has come

    async def write(self, answer: bytes) -> None:
        """Hand over one answer."""
        self.answers.put_nowait(answer)


class InProcessService:
    """Calls methods of servicers by their paths; used on the event loop.

    Refusals are those of a channel: ``grpc.aio.AioRpcError`` with the status of ``services.rpc.status``.
    """

    def __init__(self, contracts: Sequence[Contract]) -> None:
        self._methods: dict[str, Callable[..., Any]] = {
            f"/{each.service.full_name}/{method.name}": method_of(each.servicer, method.name)
            for each in contracts
            for method in each.service.methods
        }
        self._loop = asyncio.get_running_loop()

    def serves(self, path: str) -> bool:
        """Return whether there is such a method."""
        return path in self._methods

    async def call(
        self,
        path: str,
        request: Message | bytes,
        *,
        timeout_s: float | None = None,
        unwanted: Callable[[bytes], None] | None = None,  # noqa: ARG002  as of a channel
    ) -> bytes:
        """Make one call, in the caller's own task; a method that takes bytes is given bytes.

        The method is cancelled with its caller, and when time is up: it takes back itself what nobody gets, so no
        answer is ever ``unwanted``.
        """
        method = self._methods[path]
        if is_raw(method) and isinstance(request, Message):
            request = request.SerializeToString()
        until = None if timeout_s is None else self._loop.time() + timeout_s
        context = cast("Context", InProcessContext(until))
        try:
            async with asyncio.timeout_at(until) as limit:
                answer: Message | bytes = await method(request, context)
        except Exception as error:  # noqa: BLE001  a status, as over a channel
            if limit.expired() and isinstance(error, TimeoutError):
                raise _refusal(grpc.StatusCode.DEADLINE_EXCEEDED, _NOT_IN_TIME) from None
            raise _refused(path, error) from None
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    async def answers(self, path: str, request: Message) -> AsyncIterator[bytes]:
        """Yield the answers of a method that streams them, and takes messages."""
        context = InProcessStream()
        serving = self._loop.create_task(self._methods[path](request, cast("Context", context)))
        serving.add_done_callback(lambda _: context.answers.put_nowait(None))
        try:
            while (answer := await context.answers.get()) is not None:
                yield answer
            try:
                serving.result()
            except Exception as error:  # noqa: BLE001  a status, as over a channel
                raise _refused(path, error) from None
        finally:
            serving.add_done_callback(retrieve)  # what it raises meanwhile is of interest to nobody
            serving.cancel()

    async def close(self) -> None:
        """Do nothing: those who serve end their calls."""


def _refused(path: str, error: Exception) -> grpc.aio.AioRpcError:
    error = status.store_error(error)
    if isinstance(error, StoreError):
        code, problem = status.code_of(error), str(error)
        if isinstance(error, DeviceFailed):
            logs.get_logger().error("call failed", method=path, code=code.name, problem=problem)
        return _refusal(code, problem, status.status_of(error).SerializeToString())
    logs.get_logger().error("call failed", method=path, exc_info=error)
    return _refusal(grpc.StatusCode.INTERNAL, "internal error")


def _refusal(code: grpc.StatusCode, message: str, packed: bytes = b"") -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*([(status.STATUS_DETAILS_KEY, packed)] if packed else []))
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), trailing, details=message, debug_error_string=message
    )
