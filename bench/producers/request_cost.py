"""What a sequence adds to the steps of a request, in processor time.

The steps that a writer makes for one frame of a stream, between its bytes and its answer's, and
those that a client makes to number one and to make it of its records, run in this process with
numbers and without, in turn and a few at a time. The median of all differences counts: it is
repeatable where rates are not.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle, islice
from typing import Final

from bench import drivers, produce
from bench.resident import wait_until_warmed
from penstock.framing import framed_batch
from penstock.sequences import RequestToken, Sequences
from services import memory
from services.writer import batch_frames
from services.writer.servicer import QUEUES_MAX
from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.files.allocator import WARM_FILES
from storage.kernels import warm
from storage.writer import StoreWriter

FRAMES: Final = 20  # of a turn
TURNS: Final = 8  # of each side in a round
CLIENT_FRAMES: Final = 200

Steps = Callable[[int], float]
"""Makes so many requests; returns the processor microseconds of one."""


def cpu_us(frames: list[bytes], step: Callable[[bytes], object]) -> float:
    """Return what a step takes of the thread's processor time."""
    begin = time.thread_time_ns()
    for frame in frames:
        step(frame)
    return (time.thread_time_ns() - begin) / len(frames) / 1_000


def own_bytes(*parts: bytes) -> bytes:
    """Return the parts joined, in memory that no other request shares."""
    return bytes(bytearray().join(parts))


def paired(numbered: Steps, bare: Steps, frames: int, rounds: int) -> list[tuple[float, float]]:
    """Return each round's medians of both, who take turns; who is first changes with each turn."""
    pairs = []
    for _ in range(rounds + 1):
        turns = []
        for turn in range(TURNS):
            if turn % 2:
                with_number = numbered(frames)
                turns.append((with_number, bare(frames)))
            else:
                without = bare(frames)
                turns.append((numbered(frames), without))
        added = statistics.median(ours - other for ours, other in turns)
        without = statistics.median(other for _, other in turns)
        pairs.append((without + added, without))
    return pairs[1:]


@contextmanager
def warmed_store() -> Iterator[StoreWriter]:
    """Give a store for which no device is waited for; nothing is dispatched by its thread meanwhile."""
    config = StoreConfig(
        unflushed_bytes_max=8 << 30,
        commit_log_file_size=produce.LOG_FILE_BYTES,
        warm_cache_bytes_max=WARM_FILES * produce.LOG_FILE_BYTES,
    )
    with drivers.scratch_store() as directory, StoreWriter.open(directory, config) as writer:
        writer.create_topic(produce.TOPIC, produce.QUEUES)
        writer.append_batch(produce.encoded(0, b"x"))  # has the second file made
        wait_until_warmed(directory / "commitlog", produce.LOG_FILE_BYTES)
        writer.dispatch_by(lambda: None)
        yield writer


def of_writer(rounds: int) -> list[tuple[float, float]]:
    """Time what a writer does between a frame and its answer."""
    numbers, producer_id = count(1), secrets.randbelow(1 << 62) + 1
    frames = cycle(produce.batches(produce.BODY_BYTES))
    with warmed_store() as writer:

        def store(frame: bytes) -> None:
            records, producer = batch_frames.batch_request(frame)
            result = writer.append_batch_of_few(records, queues_max=QUEUES_MAX, producer=producer)
            assert result is not None
            batch_frames.stream_stored(result)

        def bare(so_many: int) -> float:
            used = cpu_us([own_bytes(frame) for frame in islice(frames, so_many)], store)
            writer.dispatch_few(0)
            assert writer.wait_dispatched(writer.appended_offset, 60)
            return used

        def numbered(so_many: int) -> float:
            fields = (RequestToken(producer_id, number).field(0) for number in numbers)
            sent = [
                own_bytes(field, frame)
                for frame, field in zip(islice(frames, so_many), fields, strict=False)
            ]
            used = cpu_us(sent, store)
            writer.dispatch_few(0)
            assert writer.wait_dispatched(writer.appended_offset, 60)
            return used

        return paired(numbered, bare, FRAMES, rounds)


def of_client(rounds: int) -> list[tuple[float, float]]:
    """Time what a client does to number a frame and make it of its records."""
    sequences = Sequences(SystemClock())
    records = [produce.encoded(0, b"x" * 1_000)]
    size = sum(map(len, records))

    def number(_: bytes) -> None:
        token = sequences.begin()
        framed_batch(records, size, token.field(0))
        sequences.end(token)

    def frame(_: bytes) -> None:
        framed_batch(records, size)

    turns = [b""] * CLIENT_FRAMES
    return paired(
        lambda so_many: cpu_us(turns[:so_many], number),
        lambda so_many: cpu_us(turns[:so_many], frame),
        CLIENT_FRAMES,
        rounds,
    )


def added_us(*, rounds: int) -> list[float]:
    """Return what a sequence adds to the steps of client and writer, of each round."""
    warm()
    memory.settle()
    sides = of_writer(rounds), of_client(rounds)
    return [
        sum(numbered - bare for numbered, bare in of_round) for of_round in zip(*sides, strict=True)
    ]
