"""The transport alone: a grpc.aio server that stores nothing, and drivers that time both it and us.

The echo server has the same options as the services, and the drivers are the same for both sides, so
a ratio of two rates is what the store adds. Rounds of both sides alternate, and the ratio reported is
the median of each round's, because a shared machine's speed changes from one second to the next: rounds
are short, and there are many.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from services import loops, memory
from services.rpc.limits import server_options
from services.rpc.servicer import EOF
from services.settings import WriterSettings

UNARY: Final = "/penstock.bench.Echo/Unary"
SINK: Final = "/penstock.bench.Echo/Sink"
SOURCE: Final = "/penstock.bench.Echo/Source"
RESPONSE_BYTES: Final = 1 << 20
# As long as the writer's answers, which say where messages are.
UNARY_ANSWER: Final = bytes(112)
SINK_ANSWER: Final = bytes(40)
CLIENT_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class ServiceFigure:
    """One figure of the services beside its limit: medians of rounds in ``unit``."""

    name: str
    unit: str
    ours: float
    transport: float
    ratio: float
    ratio_wanted: float
    rounds: Sequence[tuple[float, float]] = field(default=())

    @property
    def reached(self) -> bool:
        """Whether the ratio is at least the one wanted."""
        return self.ratio >= self.ratio_wanted


async def alternate(
    name: str,
    unit: str,
    ratio_wanted: float,
    ours: Callable[[], Awaitable[float]],
    transport: Callable[[], Awaitable[float]],
    *,
    rounds: int,
) -> ServiceFigure:
    """Time both sides ``rounds`` times in turn, after one round that does not count."""
    await transport()
    await ours()
    pairs = []
    for _ in range(rounds):
        limit = await transport()
        pairs.append((await ours(), limit))
    return ServiceFigure(
        name,
        unit,
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[0] / pair[1] for pair in pairs),
        ratio_wanted,
        pairs,
    )


async def time_unary(
    channel: Any, method: str, request: bytes, *, calls: int, in_flight: int
) -> float:
    """Return calls per second with ``in_flight`` at once."""
    call = channel.unary_unary(method)
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await call(request)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return calls / (time.perf_counter() - started)


async def time_sink(
    channel: Any, method: str, frames: Sequence[bytes], *, count: int, in_flight: int
) -> float:
    """Return frames per second of a stream that answers each, ``in_flight`` unanswered at most."""
    call = channel.stream_stream(method)()
    room = asyncio.Semaphore(in_flight)

    async def receive() -> None:
        for _ in range(count):
            answer = await call.read()
            assert answer is not EOF
            room.release()

    started = time.perf_counter()
    receiving = asyncio.ensure_future(receive())
    for number in range(count):
        await room.acquire()
        await call.write(frames[number % len(frames)])
    await call.done_writing()
    await receiving
    seconds = time.perf_counter() - started
    assert await call.read() is EOF
    return count / seconds


async def time_source(channel: Any, method: str, request: bytes) -> float:
    """Return MiB per second of a stream of responses."""
    call = channel.unary_stream(method)(request)
    received = 0
    started = time.perf_counter()
    while (response := await call.read()) is not EOF:
        received += len(response)
    return received / (1 << 20) / (time.perf_counter() - started)


def stub(kind: Any, channel: Any) -> Any:
    """Return a generated stub, which has no types."""
    return kind(channel)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run ``python -m arguments``; give the address it says it serves on, and its process id."""
    running = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert running.stdout is not None
        for line in running.stdout:
            if " serves on " in line:
                yield line.partition(" serves on ")[2].split()[0], running.pid
                break
        else:
            raise RuntimeError(f"{arguments[0]} did not start")
    finally:
        running.terminate()
        running.wait(30)


@contextmanager
def scratch_store() -> Iterator[Path]:
    """Give a directory for a store, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        yield Path(directory) / "store"


def resident_mib(process_id: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no process {process_id}")


def report(measures: Sequence[ServiceFigure], *, as_json: bool) -> None:
    """Print figures as JSON lines or as a table."""
    for measure in measures:
        if as_json:
            print(json.dumps({**asdict(measure), "reached": measure.reached}))
        else:
            print(
                f"{measure.name:48} {measure.ours:12,.0f} {measure.unit:8}"
                f" transport {measure.transport:12,.0f}  ratio {measure.ratio:5.2f}"
                f" (wanted {measure.ratio_wanted:.2f}{'' if measure.reached else ', NOT reached'})"
            )


def arguments() -> argparse.Namespace:
    """Return the options that these benches share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


class _Echo:
    def __init__(self) -> None:
        self._response = bytes(RESPONSE_BYTES)

    async def unary(self, _request: bytes, _context: Any) -> bytes:
        return UNARY_ANSWER

    async def sink(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for _ in requests:
            await context.write(SINK_ANSWER)

    async def source(self, request: bytes, context: Any) -> None:
        for _ in range(int(request)):
            await context.write(self._response)


async def _serve() -> None:
    memory.keep_buffers()
    echo = _Echo()
    settings = WriterSettings(store=Path("unused"))
    server = grpc.aio.server(options=server_options(settings))
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(echo.unary),
        "Sink": grpc.stream_stream_rpc_method_handler(echo.sink),
        "Source": grpc.unary_stream_rpc_method_handler(echo.source),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("penstock.bench.Echo", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"echo serves on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    loops.run(_serve())
