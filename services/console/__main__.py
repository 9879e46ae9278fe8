"""Runs the console as a process of its own; see ``penstock console --help``."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock import AsyncClient, RetryPolicy
from penstock.credentials import given_credentials
from penstock.tls import LOOK_SECONDS, ChangedFiles, identity
from services import logs, loops, process, stdio
from services.config.flags import load
from services.config.settings import ConsoleSettings
from services.config.usage import EXIT_USAGE
from services.rpc.ports import CannotListen, check_free
from storage.clock import SystemClock

if TYPE_CHECKING:
    import uvicorn

SERVICE: Final = "console"
TIMEOUT_S: Final = 5.0  # of a call; somebody looks on
UNREACHABLE_S_MAX: Final = 0.3
CONNECTIONS_MAX: Final = 512  # beyond, a request is refused with 503
NEEDED: Final = ("jinja2", "starlette", "uvicorn")
MISSING: Final = "it needs penstock with its extra console"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    settings = load(ConsoleSettings, argv, prog=f"penstock {SERVICE}")
    stdio.hold()
    logs.configure(service=SERVICE, level=settings.log_level, log_format=settings.log_format)
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            return process.fail(SERVICE, f"{name} is not installed: {MISSING}", EXIT_USAGE)
    try:
        if not settings.accounts:
            given_credentials()
        check_free(settings.listen)
    except ValueError as error:
        return process.fail(SERVICE, f"PENSTOCK_ACCESS_KEY: {error}", EXIT_USAGE)
    except CannotListen as error:
        return process.fail(SERVICE, str(error), process.EXIT_CODE_OF[CannotListen])
    try:
        loops.run(serve(settings, _announce))
    except KeyboardInterrupt:
        return 0
    return 0


def client_of(settings: ConsoleSettings, access_key: str, secret_key: str) -> AsyncClient:
    """Return a client of the services with a user's keys, or those of the variables."""
    return AsyncClient(
        writer=settings.writer,
        reader=settings.reader,
        indexer=settings.indexer,
        tls=settings.tls_of_calls,
        timeout_s=TIMEOUT_S,
        retry=RetryPolicy(unreachable_s_max=UNREACHABLE_S_MAX),
        access_key=access_key,
        secret_key=secret_key,
    )


def _announce(address: str) -> None:
    process.announce(SERVICE, address)


async def serve(settings: ConsoleSettings, ready: Callable[[str], None]) -> None:
    """Serve pages until a signal to stop; ``ready`` is called with the address."""
    import uvicorn

    from services.console.app import make_app

    app = make_app(settings, SystemClock(), lambda name, secret: client_of(settings, name, secret))
    host, _, port = settings.listen.rpartition(":")
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=host.strip("[]"),
            port=int(port),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            limit_concurrency=CONNECTIONS_MAX,
            ssl_certfile=settings.port_cert,
            ssl_keyfile=settings.port_key,
        )
    )
    serving = asyncio.ensure_future(server.serve())
    renewing = asyncio.ensure_future(_take_up_files(settings, server.config))
    while not server.started and not serving.done():
        await asyncio.sleep(0.02)
    if server.started:
        bound = server.servers[0].sockets[0].getsockname()[1]
        ready(f"{host}:{bound}")
    try:
        await serving
    finally:
        renewing.cancel()


async def _take_up_files(settings: ConsoleSettings, config: uvicorn.Config) -> None:
    """Have new connections use a certificate that has changed; a bad one changes nothing."""
    cert, key = settings.port_cert, settings.port_key
    if cert is None or key is None:
        return

    def read() -> None:
        identity(cert, key)
        if config.ssl is not None:
            config.ssl.load_cert_chain(cert, key)

    def say(problem: str) -> None:
        logs.get_logger().warning("the port keeps its certificate", problem=problem)

    files = ChangedFiles([cert, key], read)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        files.look(say)


if __name__ == "__main__":
    process.leave(main())
