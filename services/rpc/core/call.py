"""One call on gRPC's core, as its handler sees it. All methods run on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

import grpc

from services.rpc.core import cygrpc
from services.rpc.served_call import CallAborted, CallEnded, Handler, Metadata, ServedCall

_NO_FLAGS: Final = 0
_NO_METADATA: Final = ()
_NO_DEADLINE_S: Final = 1e10  # after 1970: the core's way to say that there is none
WATCH_SECONDS: Final = 0.02  # a brief call is watched after one to two of it


class CoreCall(ServedCall):
    """A call that the core has announced; :class:`ServedCall` says what its methods do."""

    __slots__ = (
        "__weakref__",
        "_call",
        "_deadline_s",
        "_ended",
        "_has_begun",
        "_has_status",
        "_is_cancelled",
        "_is_watched",
        "_late_watch",
        "_loop",
        "_metadata",
        "_peer",
        "_task",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        requested: Any,
        ended: Callable[[], None],
        late_watch: LateWatch,
    ) -> None:
        """Take a call that the core has announced; ``ended`` is called once, when it is over."""
        self._loop = loop
        self._late_watch = late_watch
        self._call = requested.call
        self._deadline_s: float = requested.call_details.deadline
        self._metadata: Metadata = requested.invocation_metadata
        self._ended = ended
        self._task: asyncio.Task[None] | None = None
        self._peer: str | None = None
        self._has_begun = False  # its initial metadata are sent
        self._has_status = False  # it is sent, or on its way
        self._is_watched = False  # the core has been asked to say when it is closed
        self._is_cancelled = False

    # ---- what a handler may ask

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def cancelled(self) -> bool:
        return self._is_cancelled

    def time_remaining(self) -> float | None:
        if self._deadline_s > _NO_DEADLINE_S:
            return None
        return max(0.0, self._deadline_s - time.time())

    def peer(self) -> str:
        if self._peer is None:
            peer = self._call.peer()
            self._peer = peer.decode(errors="replace") if isinstance(peer, bytes) else str(peer)
        return self._peer

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        found = cygrpc.auth_context(self._call) or {}
        return {key.decode(): value for key, value in found.items()}

    async def read_each(self, take: Callable[[bytes], Awaitable[None] | None]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        waiting: asyncio.Future[None] | None = None
        context = copy_context()  # of the handler: completions have none of its variables

        def read_next() -> None:
            self._start((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), received)

        def received(completion: Any) -> None:
            nonlocal waiting
            if done.done():  # its handler has been cancelled
                return
            try:
                data: bytes | None = completion.batch_operations[0].message()
                if not completion.success:
                    raise CallEnded
                if data is None:
                    done.set_result(None)
                    return
                wanted = context.run(take, data)
                if wanted is None:
                    read_next()
                else:
                    waiting = context.run(asyncio.ensure_future, wanted)
                    waiting.add_done_callback(waited)
            except Exception as error:  # noqa: BLE001  its handler decides
                done.set_exception(error)

        def waited(ended: asyncio.Future[None]) -> None:
            if done.done() or ended.cancelled():
                return
            try:
                ended.result()
                read_next()
            except Exception as error:  # noqa: BLE001  its handler decides
                done.set_exception(error)

        read_next()
        try:
            await done
        finally:
            if waiting is not None:
                waiting.cancel()

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        self._has_begun = True
        operation = cygrpc.SendInitialMetadataOperation(tuple(metadata), _NO_FLAGS)
        await self._done((operation,))

    async def write(self, answer: bytes) -> None:
        if self._has_status:
            raise CallEnded
        await self._done((*self._beginning(), cygrpc.SendMessageOperation(answer, _NO_FLAGS)))

    async def write_all(self, answers: Iterable[bytes]) -> None:
        if self._has_status:
            raise CallEnded
        following = iter(answers)
        done: asyncio.Future[bool] = self._loop.create_future()

        def write_next(completion: Any) -> None:
            if done.done():  # its handler has been cancelled
                return
            if completion is not None and not completion.success:
                done.set_result(False)
                return
            try:
                answer = next(following, None)
                if answer is None:
                    done.set_result(True)
                    return
                message = cygrpc.SendMessageOperation(answer, _NO_FLAGS)
                self._start((*self._beginning(), message), write_next)
            except Exception as error:  # noqa: BLE001  its handler decides
                done.set_exception(error)

        write_next(None)
        if not await done:
            raise CallEnded

    def cancel(self) -> None:
        """End it at once, also where its caller takes nothing."""
        self.watch()
        self._call.cancel(cygrpc.StatusCode.cancelled, "cancelled by the service")

    # ---- its course

    def serve(self, handler: Handler) -> None:
        """Run the handler, with the request where it takes one."""
        if handler.takes_stream:
            self._run(handler.run(self))
        else:
            receive = cygrpc.ReceiveMessageOperation(_NO_FLAGS)
            self._start((receive,), lambda completion: self._requested(handler, completion))

    def watch(self) -> None:
        """Have the core say when the caller ends the call; its handler is cancelled then."""
        if not self._is_watched:
            self._is_watched = True
            operation = cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS)
            with suppress(CallEnded):
                self._start((operation,), self._closed)

    def refuse(self, code: grpc.StatusCode, message: str) -> None:
        """End a call that no handler serves."""
        self._end(code.value[0], message)

    def _requested(self, handler: Handler, completion: Any) -> None:
        data: bytes | None = completion.batch_operations[0].message()
        if data is None:
            self._end(cygrpc.StatusCode.invalid_argument, "the call has no request")
        else:
            self._run(handler.run(data, self), is_brief=handler.is_brief)

    def _run(self, serving: Coroutine[Any, Any, bytes | None], *, is_brief: bool = False) -> None:
        self._task = self._loop.create_task(self._serve(serving))
        if is_brief:
            self._late_watch.add(self)
        else:
            # Of a stream that was cut off the core reads an end: only this tells it from its end.
            self._loop.call_soon(self.watch)  # after the task's first step, which ends most calls

    async def _serve(self, serving: Coroutine[Any, Any, bytes | None]) -> None:
        try:
            answer = await serving
        except CallAborted as aborted:
            self._end(aborted.code.value[0], aborted.message, aborted.trailing_metadata)
        except (CallEnded, asyncio.CancelledError):
            self._end(cygrpc.StatusCode.cancelled, "cancelled")
        except BaseException:
            self._end(cygrpc.StatusCode.unknown, "the handler failed")
            raise
        else:
            self._answer(answer)
        finally:
            self._task = None  # which refers to the call

    def _closed(self, completion: Any) -> None:
        self._is_cancelled = completion.batch_operations[0].cancelled()
        if self._is_cancelled and self._task is not None:
            self._task.cancel()

    def _answer(self, answer: bytes | None) -> None:
        """Send the answer, if there is one, with the status OK."""
        messages = () if answer is None else (cygrpc.SendMessageOperation(answer, _NO_FLAGS),)
        self._finish(messages, cygrpc.StatusCode.ok, "", _NO_METADATA)

    def _end(self, code: int, message: str, metadata: Metadata = _NO_METADATA) -> None:
        self._finish((), code, message, metadata)

    def _finish(self, messages: Sequence[Any], code: int, text: str, metadata: Metadata) -> None:
        """Send the call's status, once; its memory is the core's until the core says that it is over."""
        if self._has_status:
            return
        self._has_status = True
        self._late_watch.discard(self)
        operations = [
            *self._beginning(),
            *messages,
            cygrpc.SendStatusFromServerOperation(
                tuple(metadata), code, text.encode(errors="replace"), _NO_FLAGS
            ),
        ]
        if not self._is_watched:
            self._is_watched = True
            operations.append(cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS))
        try:
            self._start(operations, self._finished)
        except CallEnded:
            self._ended()

    def _finished(self, _completion: Any) -> None:
        self._ended()

    def _beginning(self) -> tuple[Any, ...]:
        if self._has_begun:
            return ()
        self._has_begun = True
        return (cygrpc.SendInitialMetadataOperation(_NO_METADATA, _NO_FLAGS),)

    async def _done(self, operations: Sequence[Any]) -> None:
        """Have a batch done by the core. Raises CallEnded if it was not."""
        done: asyncio.Future[bool] = self._loop.create_future()

        def finish(completion: Any) -> None:
            if not done.done():
                done.set_result(completion.success)

        self._start(operations, finish)
        if not await done:
            raise CallEnded

    def _start(self, operations: Sequence[Any], tag: Callable[[Any], None]) -> None:
        if self._call.start_server_batch(operations, tag):
            raise CallEnded


class LateWatch:
    """Has brief calls watched that are not answered soon. All methods run on the event loop.

    To learn when a caller goes costs as much as to read its request.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._old: set[CoreCall] = set()
        self._new: set[CoreCall] = set()
        self._is_turning = False

    def add(self, call: CoreCall) -> None:
        """Watch it later, unless it is discarded."""
        self._new.add(call)
        if not self._is_turning:
            self._is_turning = True
            self._loop.call_later(WATCH_SECONDS, self._turn)

    def discard(self, call: CoreCall) -> None:
        """Do not watch it."""
        self._new.discard(call)
        self._old.discard(call)

    def _turn(self) -> None:
        due, self._old, self._new = self._old, self._new, set()
        for call in due:
            call.watch()
        if self._old:
            self._loop.call_later(WATCH_SECONDS, self._turn)
        else:
            self._is_turning = False
