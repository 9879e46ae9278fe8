"""What a call is to the handler that serves it, whichever server it came by (``core``, ``aio_server``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import grpc

Metadata = Sequence[tuple[str, str | bytes]]

_COMMON_NAME: Final = "x509_common_name"


class CallEnded(Exception):
    """The call has ended: by its caller, or because its connection broke."""


class CallAborted(Exception):
    """What a handler raises to end its call with a status."""

    def __init__(
        self, code: grpc.StatusCode, message: str, trailing_metadata: Metadata = ()
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.trailing_metadata = code, message, trailing_metadata


class Handler(NamedTuple):
    """What serves a method: a function of the request's bytes and the call, or of the call alone.

    It returns the answer's bytes: the last one of a stream, None where all are written.
    """

    takes_stream: bool
    run: Callable[..., Coroutine[Any, Any, bytes | None]]
    is_brief: bool = False  # it takes one request, and goes on to its end when its caller has gone


class ServedCall(Protocol):
    """A call from its first byte to its status; used on the event loop.

    One coroutine reads, and at most one write is under way at a time. A call that its caller ends is cancelled
    with its handler.
    """

    __slots__ = ()

    # Some turns of the loop pass until its end, which has come, cancels its handler.
    ends_late: bool = True

    def invocation_metadata(self) -> Metadata:
        """Return the caller's metadata."""
        ...

    def cancelled(self) -> bool:
        """Whether the call has been ended by its caller, its deadline or a broken connection."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller's deadline, None if it has none."""
        ...

    def peer(self) -> str:
        """Return who calls, such as ``ipv4:127.0.0.1:40112``."""
        ...

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return what is known of the connection's security."""
        ...

    def peer_identity(self) -> str | None:
        """Return the common name of the caller's certificate; None if the port asked for none, or on plaintext."""
        names = self.auth_context().get(_COMMON_NAME, ())
        return names[0].decode(errors="replace") if names else None

    async def read_each(self, take: Callable[[bytes], Awaitable[None] | None]) -> None:
        """Give each message to ``take`` as it comes, and return after the last one. Raises CallEnded.

        The next message is read when ``take`` has returned, and what it returned has been awaited. What either
        raises is raised.
        """
        ...

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Send metadata ahead of any answer. Raises CallEnded."""
        ...

    async def write(self, answer: bytes) -> None:
        """Write one answer; return when the connection has taken it. Raises CallEnded."""
        ...

    async def write_all(self, answers: Iterable[bytes]) -> None:
        """Write answers, each made when the one before is taken; return when all are. Raises CallEnded."""
        ...

    def cancel(self) -> None:
        """Have the call end, also where its caller takes nothing: its handler is cancelled."""
        ...


class CallServer(Protocol):
    """Serves handlers by the paths of their methods; all methods run on the event loop."""

    def __init__(
        self, handlers: Mapping[str, Handler], options: Sequence[tuple[str, int]], *, calls_max: int
    ) -> None:
        """Serve ``handlers``; more calls at once than ``calls_max`` are refused."""
        ...

    def add_port(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on an address; return the port. Raises RuntimeError if that is not possible."""
        ...

    async def start(self) -> None:
        """Take calls."""
        ...

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls, let those under way end within the grace, then cancel them."""
        ...
