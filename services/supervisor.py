"""``penstock serve``: the services as child processes, restarted when they die.

The gateway is a port of the reader. The children are new programs, never forks of a process that has
loaded gRPC. They print their addresses on their stdout, log to the stderr they inherit, and stop when
this process does, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from services import stdio
from services.config.flags import load
from services.config.settings import (
    IndexerSettings,
    ListenSettings,
    ReaderSettings,
    ServeSettings,
    WriterSettings,
)
from services.config.values import NONE, is_open_to_network
from services.metrics.endpoint import FOR_EVERYBODY, MetricsEndpoint
from services.metrics.supervised import SupervisedMetrics
from services.rpc.ports import CannotListen, check_free, keep_port

SERVICES: Final[dict[str, type[ListenSettings]]] = {
    "writer": WriterSettings,
    "reader": ReaderSettings,
    "indexer": IndexerSettings,
}
GATEWAY_LISTEN: Final = "gateway_listen"  # of the reader
METRICS: Final = "metrics_listen"
LISTENS: Final = (*(f"{service}_listen" for service in SERVICES), GATEWAY_LISTEN, METRICS)
ANY_PORT: Final = "127.0.0.1:0"
CALLS: Final = {"reader": ("writer",)}  # services that it is given the addresses of
NOT_PASSED_ON: Final = frozenset({"listen", "supervised", "config", GATEWAY_LISTEN, METRICS})
EXIT_FAILED: Final = 1
EXIT_USAGE_CODES: Final = frozenset({2, 3, 4, 5, 6})  # starting again would end the same way
EXIT_NO_STORE: Final = 4
_RESTART_DELAY_SECONDS: Final = 0.2
_RESTART_DELAY_MAX_SECONDS: Final = 10.0
_STABLE_SECONDS: Final = 30.0  # a child that lived this long is restarted without delay again
_KILL_AFTER_SECONDS: Final = 15.0  # beyond the drain grace


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop, or until a service cannot start; return the exit code."""
    stdio.hold()
    try:
        return _run(argv)
    finally:
        stdio.end()


def _run(argv: Sequence[str] | None) -> int:
    settings = load(ServeSettings, argv, prog="penstock serve")
    for service in SERVICES:  # before any of them makes anything
        load(SERVICES[service], child_arguments(service, settings), prog="penstock serve")
    for name, listen in listens_of(settings).items():
        try:
            check_free(listen)
        except CannotListen as error:
            option = f"--{name.replace('_', '-')}"
            stdio.say(f"penstock serve: {error} {option} chooses another", is_error=True)
            return 6
    with with_ports(settings) as settings, _with_pages(settings) as pages:
        return asyncio.run(_supervise(settings, pages))


def listens_of(settings: ServeSettings) -> dict[str, str]:
    """Return the addresses that are served on, by the names of their settings."""
    return {name: listen for name in LISTENS if (listen := getattr(settings, name))}


@contextlib.contextmanager
def with_ports(settings: ServeSettings) -> Iterator[ServeSettings]:
    """Choose the ports that may be any, and keep them: all services know at once where the others will be."""
    chosen = {}
    with contextlib.ExitStack() as ports:
        for name, listen in listens_of(settings).items():
            if listen.endswith(":0"):
                chosen[name], kept = keep_port(listen)
                ports.enter_context(kept)
        yield settings.model_copy(update=chosen)


@contextlib.contextmanager
def _with_pages(settings: ServeSettings) -> Iterator[dict[str, str]]:
    """Choose where each service shows its metrics to this process, and keep the ports; nowhere without metrics."""
    with contextlib.ExitStack() as ports:
        pages = {}
        for service in SERVICES if settings.metrics_listen else ():
            pages[service], kept = keep_port(ANY_PORT)
            ports.enter_context(kept)
        yield pages


def child_arguments(service: str, settings: ServeSettings, page: str = NONE) -> list[str]:
    """Return the flags of one child: what was set, and the addresses; ``page`` is where it shows its metrics."""
    flags = ["--supervised", "--listen", getattr(settings, f"{service}_listen")]
    flags += ["--metrics-listen", page]
    for name in SERVICES[service].model_fields:
        if name in NOT_PASSED_ON or name not in settings.model_fields_set:
            continue
        value = getattr(settings, name)
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(flag if value else "--no-" + name.replace("_", "-"))
        elif value is not None:
            flags += [flag, str(int(value) if isinstance(value, int) else value)]
    if settings.config is not None:
        flags += ["--config", str(settings.config)]
    if service == "reader":  # said in any case: its variable may say something else
        flags += ["--gateway-listen", settings.gateway_listen or NONE]
    if service == "writer" and settings.splits_routes:
        flags += ["--reader-address", reachable(settings.reader_listen)]
    for called in CALLS.get(service, ()):
        flags += [f"--{called}-address", reachable(getattr(settings, f"{called}_listen"))]
    return flags


class Child:
    """One service: its process, and whether it has ever served."""

    def __init__(self, service: str, arguments: Sequence[str], store: Path) -> None:
        self.service = service
        self._store = store
        self._has_served = False
        self._served_at: tuple[int, int] | None = None  # the directory that the store was then
        self._arguments = list(arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self.restarts = 0

    async def keep_running(self) -> int:
        """Run the process, again and again if it dies; return when it ends for good."""
        try:
            return await self._keep_running()
        except Exception as error:  # noqa: BLE001  the others are to be stopped in order
            _say(f"the {self.service} is not looked after any more: {error!r}", error=True)
            return EXIT_FAILED

    async def _keep_running(self) -> int:
        delay = _RESTART_DELAY_SECONDS
        while True:
            started = asyncio.get_running_loop().time()
            try:
                code = await self._run()
                end = f"ended with {_how(code)}"
            except OSError as error:  # such as no descriptor or process left
                code, end = EXIT_FAILED, f"cannot be started ({error})"
            if self._stopping:
                if code == -signal.SIGTERM:  # stopped before it could handle the signal
                    return 0
                if code:
                    _say(f"the {self.service} {end}", error=True)
                return code
            if code in EXIT_USAGE_CODES and not self._has_served:
                return code
            if asyncio.get_running_loop().time() - started > _STABLE_SECONDS:
                delay = _RESTART_DELAY_SECONDS
            if self._has_moved():
                # A writer would make another store in its place.
                _say(
                    f"the {self.service} {end} and is not started again: the store's directory"
                    " was renamed or removed",
                    error=True,
                )
                return EXIT_NO_STORE
            _say(f"the {self.service} {end}; starting it again", error=True)
            self.restarts += 1
            await asyncio.sleep(delay)
            delay = min(delay * 2, _RESTART_DELAY_MAX_SECONDS)
            if self._stopping:
                return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Tell the process to drain and end, and do not start it again."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _run(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"services.{self.service}",
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the supervisor, which stops them in order
        )
        if self._stopping:
            self.stop()
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip()
            if " serves on " in text:
                self._has_served = True
                if self._served_at is None:
                    with contextlib.suppress(OSError):
                        self._served_at = _directory_at(self._store)
                text = f"{text} (pid {self._process.pid})"
            _say(text)
        return await self._process.wait()

    def _has_moved(self) -> bool:
        """Whether another directory is where the store was served, or none. One that a failing device hides has not moved."""
        try:
            return self._served_at not in (None, _directory_at(self._store))
        except (FileNotFoundError, NotADirectoryError):
            return self._served_at is not None
        except OSError:
            return False


async def _supervise(settings: ServeSettings, pages: Mapping[str, str]) -> int:
    children = [
        Child(name, child_arguments(name, settings, pages.get(name, NONE)), settings.store)
        for name in SERVICES
    ]
    endpoint = _metrics_of(children, settings, pages) if pages else None
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    _say(f"store {os.path.abspath(settings.store)}")  # noqa: PTH100  resolve() would follow links
    running = {asyncio.create_task(child.keep_running()): child for child in children}
    waiting = asyncio.create_task(stopped.wait())
    done, _ = await asyncio.wait({waiting, *running}, return_when=asyncio.FIRST_COMPLETED)
    code = next((task.result() for task in done if task in running), 0)
    # The writer goes first: what it acknowledged last can still be read and indexed meanwhile.
    for child in children:
        child.stop()
    patience = settings.drain_grace_seconds + _KILL_AFTER_SECONDS
    _, late = await asyncio.wait(running, timeout=patience)
    for task in late:
        running[task].stop(signal.SIGKILL)
    if late:
        await asyncio.wait(late)
    waiting.cancel()
    if endpoint is not None:
        endpoint.close()
    ends = [task.result() for task in running]
    if not code and any(ends):
        code = 1
    _say("stopped")
    return code


def _metrics_of(
    children: Sequence[Child], settings: ServeSettings, pages: Mapping[str, str]
) -> MetricsEndpoint:
    """Serve the pages of all services as one."""
    guard = FOR_EVERYBODY
    if is_open_to_network(settings.metrics_listen):
        from services.accounts.page_guard import page_guard  # which loads what opens files

        guard = page_guard(settings)

    def restarts() -> dict[str, int]:
        return {child.service: child.restarts for child in children}

    endpoint = MetricsEndpoint(
        settings.metrics_listen, SupervisedMetrics(pages, restarts).page, guard
    )
    _say(f"metrics serves on {endpoint.address}")
    return endpoint


def reachable(listen: str) -> str:
    """Return the address to call on this machine for one that is listened on."""
    host, _, port = listen.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("0.0.0.0", "[::]") else listen  # noqa: S104  any of them


def _directory_at(path: Path) -> tuple[int, int]:
    """Return which directory is at a path. Raises OSError."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _say(text: str, *, error: bool = False) -> None:
    stdio.say(f"penstock: {text}", is_error=error)


if __name__ == "__main__":
    sys.exit(main())
