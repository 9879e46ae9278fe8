"""Objects that are open until closed, for ``with``, ``async with`` and contextlib's two closings.

`Closing` and `AsyncClosing` are two forms of one: iterators for threads are generated from those for asyncio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Leaving the ``with`` block closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it. Closing twice does nothing."""


class AsyncClosing(ABC):
    """Leaving the ``async with`` block closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Close it. Closing twice does nothing."""

    async def aclose(self) -> None:
        """Close it, as an asynchronous generator is closed."""
        await self.close()
