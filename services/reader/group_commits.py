"""Group commit of consumer offsets: all that arrive while one save runs share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.reader.leases import ReaderLeases
from storage.leases.values import OffsetCommit


class GroupCommits:
    """All methods run on the event loop."""

    def __init__(self, store: ReaderLeases) -> None:
        self._store = store
        self._waiting: list[tuple[OffsetCommit, asyncio.Future[None]]] = []
        self._saver: asyncio.Task[None] | None = None

    async def commit(self, offset: OffsetCommit) -> None:
        """Return when the progress is on disk."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        if self._saver is None:
            self._saver = asyncio.create_task(self._save())
        await future

    async def _save(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                outcomes: Sequence[BaseException | None] = await asyncio.to_thread(
                    self._store.commit_existing, [offset for offset, _ in batch]
                )
            except Exception as error:  # noqa: BLE001  handed to everybody who waits
                outcomes = [error] * len(batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue
                if outcome is None:
                    future.set_result(None)
                else:
                    future.set_exception(outcome)
        self._saver = None
