"""One queue read as a stream of pulls."""

from __future__ import annotations

from penstock.calls.call import Call
from penstock.client.connection import ConnectionCore
from penstock.forms import AsyncClosing, AsyncIterating, Closing, Iterating, both
from penstock.values import PullResult


class PullStreamCore:
    """Pulls that the reader sends ahead, in both forms."""

    def __init__(self, client: ConnectionCore, call: Call[PullResult]) -> None:
        self._home = client._home()
        self._ahead = client._read_ahead(call)

    def __del__(self) -> None:
        if hasattr(self, "_ahead"):  # it was made whole
            self._ahead.stop()

    async def _close(self) -> None:
        """Read no more: the iteration ends. Closing twice does nothing."""
        self._home.check()
        await self._ahead.end()

    close = both(_close)

    async def _next_item(self) -> PullResult:
        self._home.check()
        return await self._ahead.next_answer()


class PullStream(PullStreamCore, Iterating[PullResult], Closing):
    """Pulls that the reader sends ahead; made by `Client.pull_stream`, used by one thread.

    A thread of its own reads the stream, so after an interrupt of ``next`` it goes on and no result is lost.
    """


class AsyncPullStream(PullStreamCore, AsyncIterating[PullResult], AsyncClosing):
    """As `PullStream`, for one task."""
