"""Drivers of services: processes to time, and rounds of requests that time them and their controls alike.

The answers of both sides are read, and only what they say was stored counts. Rounds of both sides
alternate, and the ratio reported is the median of each round's, because a shared machine's speed changes
from one second to the next.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from bench.figures import Figure, beside
from penstock.errors import ResourceExhausted, from_rpc_error
from penstock.v1 import writer_pb2

ROUNDS: Final = 15
STOP_SECONDS_MAX: Final = 120  # a writer that has just met very many queues makes their files first
CLIENT_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.use_local_subchannel_pool", 1),
]


class Rate(NamedTuple):
    """What one side did in a round: so much a second, and how often it refused for the moment."""

    value: float
    refused: int = 0


async def alternate(
    name: str,
    unit: str,
    ratio_wanted: float,
    ours: Callable[[], Awaitable[Rate]],
    limit: Callable[[], Awaitable[Rate]],
    *,
    rounds: int,
    limit_name: str = "empty transport",
) -> Figure:
    """Time both sides ``rounds`` times in turn, after one round that does not count."""
    await limit()
    await ours()
    pairs, refused = [], 0
    for _ in range(rounds):
        bound = (await limit()).value
        reached = await ours()
        pairs.append((reached.value, bound))
        refused += reached.refused
    return beside(
        name,
        unit,
        pairs,
        limit_name=limit_name,
        refused=refused,
        wanted=f"{ratio_wanted} x",
        is_reached=lambda _, ratio: ratio >= ratio_wanted,
    )


def for_seconds(requests: Sequence[bytes], seconds: float) -> Iterator[bytes]:
    """Give requests in turn until so much time has passed since the first was asked for."""
    until = time.perf_counter() + seconds
    for request in cycle(requests):
        if time.perf_counter() >= until:
            return
        yield request


async def time_unary(
    channel: Any, method: str, requests: Iterable[bytes], *, in_flight: int
) -> Rate:
    """Return messages stored per second, as ProduceResponses say, with ``in_flight`` calls at once.

    A call refused with a delay is made again after it. Raises PenstockError for any other failure,
    RuntimeError for an answer that says nothing was stored.
    """
    call = channel.unary_unary(method)
    left = iter(requests)
    stored = refused = 0

    async def worker() -> None:
        nonlocal stored, refused
        for request in left:
            while True:
                try:
                    answer = await call(request)
                    break
                except grpc.aio.AioRpcError as error:
                    refusal = from_rpc_error(error)
                    if not isinstance(refusal, ResourceExhausted) or not refusal.retry_delay_ms:
                        raise refusal from error
                refused += 1
                await asyncio.sleep(refusal.retry_delay_ms / 1000)
            results = writer_pb2.ProduceResponse.FromString(answer).results
            if not results:
                raise RuntimeError("a call was answered and stored nothing")
            stored += len(results)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return Rate(stored / (time.perf_counter() - started), refused)


async def time_sink(channel: Any, method: str, frames: Iterable[bytes], *, in_flight: int) -> Rate:
    """Return messages stored per second, as a stream's ProduceStreamResponses say.

    At most ``in_flight`` frames are unanswered. A frame refused with a delay is sent again after it,
    and counts when it is stored. Raises RuntimeError for any other refusal, and for an answer that is
    neither, or that is missing.
    """
    return await _Sink(channel.stream_stream(method)(), frames, in_flight).run()


class _Sink:
    """One stream: a task sends, one takes the answers, which come in the order of the frames."""

    def __init__(self, call: Any, frames: Iterable[bytes], in_flight: int) -> None:
        self._call = call
        self._new = iter(frames)
        self._room = asyncio.Semaphore(in_flight)
        self._unanswered: deque[bytes] = deque()
        self._again: deque[bytes] = deque()
        self._again_at = 0.0
        self._answered = asyncio.Event()
        self._stored = self._refused = 0
        self._ended_at = 0.0

    async def run(self) -> Rate:
        started = time.perf_counter()
        tasks = [asyncio.ensure_future(self._send()), asyncio.ensure_future(self._receive())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._call.cancel()
        return Rate(self._stored / (self._ended_at - started), self._refused)

    async def _send(self) -> None:
        while (frame := await self._next()) is not None:
            await self._room.acquire()
            self._unanswered.append(frame)
            await self._call.write(frame)
        await self._call.done_writing()

    async def _next(self) -> bytes | None:
        """Return what was refused, when its delay is over, or a new frame; None when all are stored."""
        while True:
            if self._again:
                await asyncio.sleep(max(0.0, self._again_at - time.perf_counter()))
                return self._again.popleft()
            if (frame := next(self._new, None)) is not None:
                return frame
            if not self._unanswered:
                return None
            self._answered.clear()
            await self._answered.wait()

    async def _receive(self) -> None:
        while isinstance(answer := await self._call.read(), bytes):
            for outcome in writer_pb2.ProduceStreamResponse.FromString(answer).outcomes:
                if not self._unanswered:
                    raise RuntimeError("a stream answered more frames than it was sent")
                self._take(outcome)
                self._answered.set()
                self._room.release()
        if self._unanswered or self._again:
            raise RuntimeError(f"a stream ended with {len(self._unanswered)} frames unanswered")

    def _take(self, answer: writer_pb2.FrameOutcome) -> None:
        frame = self._unanswered.popleft()
        if answer.HasField("failure"):
            if not answer.failure.retry_delay_ms:
                raise RuntimeError(f"a frame was refused: {answer.failure.message}")
            self._again_at = time.perf_counter() + answer.failure.retry_delay_ms / 1000
            self._again.append(frame)
            self._refused += 1
            return
        if not answer.stored.record_count:
            raise RuntimeError("a frame was answered and stored nothing")
        self._stored += answer.stored.record_count
        self._ended_at = time.perf_counter()


async def time_source(channel: Any, method: str, request: bytes, *, at_least: int) -> Rate:
    """Return MiB per second of a stream of responses; RuntimeError if it has fewer bytes."""
    call = channel.unary_stream(method)(request)
    received = 0
    started = time.perf_counter()
    while isinstance(response := await call.read(), bytes):
        received += len(response)
    seconds = time.perf_counter() - started
    if received < at_least:
        raise RuntimeError(f"a stream of {at_least} bytes ended after {received}")
    return Rate(received / (1 << 20) / seconds)


def stub(kind: Any, channel: Any) -> Any:
    """Return a generated stub, which has no types."""
    return kind(channel)


def process(*arguments: str) -> AbstractContextManager[tuple[str, int]]:
    """Run ``python -m arguments``; give the address it says it serves on, and its process id."""
    return command([sys.executable, "-m", *arguments], says="serves on")


def service(name: str, store: Path, *options: str) -> AbstractContextManager[tuple[str, int]]:
    """Run the writer, the reader or the indexer of a store; give what :func:`process` gives."""
    return process(f"services.{name}", "--store", str(store), "--listen", "127.0.0.1:0", *options)


@contextmanager
def command(arguments: Sequence[str], *, says: str) -> Iterator[tuple[str, int]]:
    """Run a command until the end; give the address in the line that says so, and its process id."""
    running = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert running.stdout is not None
        for line in running.stdout:
            if f"{says} " in line:
                yield line.partition(f"{says} ")[2].split()[0], running.pid
                break
        else:
            raise RuntimeError(f"{' '.join(arguments)} did not start")
    finally:
        running.terminate()
        running.wait(STOP_SECONDS_MAX)


@contextmanager
def scratch_store() -> Iterator[Path]:
    """Give a directory for a store, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        yield Path(directory) / "store"
