"""Waiting for the writer to make a store, for services that start before it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from services import logs
from services.process import sleep_until
from storage.errors import NotAStore

_LOOK_SECONDS: Final = 0.05
_SIGNS: Final = ("checkpoint", "commitlog", "consumequeue", "config")


async def wait_for_store(
    directory: Path,
    stop: asyncio.Event,
    *,
    timeout_seconds: float,
    wanted: Sequence[str] = (),
) -> bool:
    """Return True once there is a store with all files ``wanted``; False once ``stop`` is set.

    Raises NotAStore if the directory holds something else, or no store in time.
    """
    until = time.monotonic() + timeout_seconds
    said = False
    while not stop.is_set():
        problem = _what_is_missing(directory, wanted)
        if not problem:
            return True
        if time.monotonic() >= until:
            raise NotAStore(problem)
        if not said:
            logs.get_logger().info("waiting for the writer", problem=problem)
            said = True
        await sleep_until(stop, _LOOK_SECONDS)
    return False


def _what_is_missing(directory: Path, wanted: Sequence[str]) -> str:
    try:
        names = {entry.name for entry in directory.iterdir()}
    except FileNotFoundError:
        return f"{directory} does not exist: no writer has made a store there"
    except OSError as error:
        raise NotAStore(f"{directory} cannot be read: {error.strerror}") from error
    if not names - {"lock", "abort"}:
        return f"{directory} is empty: no writer has made a store there"
    if not names.intersection(_SIGNS):
        raise NotAStore(f"{directory} is not a store: it has no commitlog, and it is not empty")
    if not all((directory / name).exists() for name in wanted):
        return f"{directory}: no writer has opened this store yet"
    return ""
