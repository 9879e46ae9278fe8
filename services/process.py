"""How a service process starts and ends: one line and an exit code if it cannot, a drain when it is stopped.

Exit codes: 0 drained, 1 failed while running, 2 settings, 3 store locked, 4 not a store,
5 newer format, 6 address taken.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from services import logs, loops, memory, stdio
from services.config.flags import load
from services.config.settings import ListenSettings, StoreProcessSettings
from services.rpc.ports import CannotListen
from storage import modes
from storage.errors import BrokenAccounts, NotAStore, StoreError, StoreLocked, UnsupportedFormat
from storage.files import open_files

SettingsT = TypeVar("SettingsT", bound=ListenSettings)
Ready = Callable[..., None]  # its arguments are those of `announce` after the first
EXIT_FAILED: Final = 1
EXIT_CODE_OF: Final[dict[type[BaseException], int]] = {
    StoreLocked: 3,
    NotAStore: 4,
    UnsupportedFormat: 5,
    CannotListen: 6,
    BrokenAccounts: 2,
}
SERVING_LINE: Final = "{service} serves on {address}"

_PR_SET_PDEATHSIG: Final = 1
_LOOK_SECONDS: Final = 0.05
_SIGNS: Final = ("checkpoint", "commitlog", "consumequeue", "config")


def run(
    service: str,
    kind: type[SettingsT],
    argv: Sequence[str] | None,
    serve: Callable[[SettingsT, asyncio.Event, Ready], Awaitable[None]],
) -> int:
    """Run ``serve`` until it ends; return the exit code.

    It is given its settings, an event which a stop signal sets, and what it calls with its address.
    """
    settings = load(kind, argv, prog=f"penstock {service}")
    stdio.hold()
    logs.configure(service=service, level=settings.log_level, log_format=settings.log_format)
    if settings.supervised:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if stdio.is_unread():  # the supervisor ended before it could be asked to signal that
            return 0
    if isinstance(settings, StoreProcessSettings):
        modes.share(shared=settings.shared_files)
    memory.keep_buffers()
    memory.set_aside()
    open_files.raise_limit()
    try:
        ready = partial(announce, service)
        loops.run(
            _until_stopped(lambda stop: serve(settings, stop, ready), settings.drain_grace_seconds)
        )
    except (StoreError, OSError, ValueError) as error:
        for each in type(error).__mro__:
            if each in EXIT_CODE_OF:
                return fail(service, str(error), EXIT_CODE_OF[each])
        if isinstance(error, ValueError):
            logs.get_logger().error("failed", exc_info=error)
        return fail(service, str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return 0
    return 0


def fail(service: str, problem: str, code: int) -> int:
    """Say in one line why the process ends; return its exit code."""
    stdio.say(f"penstock {service}: {problem}", is_error=True)
    return code


def leave(code: int) -> NoReturn:
    """End the process of a service that has let go of its store; runs no clean-up of Python's.

    Daemon threads, gRPC's poller among them, may be inside C++ while the interpreter is taken down
    around them, which sometimes aborts a process that had stopped in order.
    """
    logging.shutdown()
    stdio.end()
    os._exit(code)


def announce(service: str, address: str, gateway_address: str = "") -> None:
    """Print the address that it serves on to stdout, for the process that started it, and its gateway's."""
    memory.settle()
    for name, each in ((service, address), ("gateway", gateway_address)):
        if each:
            stdio.say(SERVING_LINE.format(service=name, address=each))


async def sleep_until(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but not longer than until ``stop`` is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


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


async def _until_stopped(
    serve: Callable[[asyncio.Event], Awaitable[None]], grace_seconds: float
) -> None:
    stopped = asyncio.Event()

    def stop() -> None:
        if not stopped.is_set():
            logs.get_logger().info("draining", grace_seconds=grace_seconds)
            stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await serve(stopped)
