"""Streams over TLS beside the same in plaintext: what encryption takes of both ends, which share the processors."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import grpc

from bench import drivers, produce, pull
from bench.controls import echo
from bench.figures import Figure, show
from cli.trial_authority import TrialAuthority, host_name
from penstock.tls import TLS, open_channel
from penstock.v1 import reader_pb2, writer_pb2, writer_pb2_grpc
from services import loops

FRAMES: Final = 500
PRODUCE_WANTED: Final = 0.6  # of plaintext
PULL_WANTED: Final = 0.7
PULL_STREAM: Final = "/penstock.v1.Reader/PullStream"


def certificates(directory: Path) -> tuple[TLS, list[str]]:
    """Make an authority; return TLS of clients, and the flags of a service."""
    authority = TrialAuthority.of(directory)
    authority.certify("server", "server", names=[host_name("127.0.0.1")], days=1)
    files = {
        name: str(directory / f"server.{end}") for name, end in (("cert", "pem"), ("key", "key"))
    }
    flags = [word for name, path in files.items() for word in (f"--tls-{name}", path)]
    return TLS(ca=directory / "ca.pem"), flags


def channel(address: str, tls: TLS | None = None) -> Any:
    """Return a channel as the other benches have."""
    return open_channel(grpc.aio, address, drivers.CLIENT_OPTIONS, tls)


async def measure_produce(secure: str, plain: str, tls: TLS, *, rounds: int) -> Figure:
    """Time bursts of batches to a writer with TLS, and to one without, which has the topic."""
    frames = produce.batches()
    async with channel(secure, tls) as ours, channel(plain) as limit:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, ours)
        request = writer_pb2.CreateTopicRequest(name=produce.TOPIC, queue_count=produce.QUEUES)
        await stub.CreateTopic(request)

        async def send(to: Any) -> drivers.Rate:
            burst = islice(cycle(frames), FRAMES)
            return await drivers.time_sink(to, produce.STREAM, burst, in_flight=produce.IN_FLIGHT)

        return await drivers.alternate(
            f"produce stream over TLS, burst of {FRAMES} batches, whole records of 1 KiB",
            "msg/s",
            PRODUCE_WANTED,
            lambda: send(ours),
            lambda: send(limit),
            rounds=rounds,
            limit_name="plaintext",
        )


async def measure_pull(secure: str, plain: str, tls: TLS, *, rounds: int) -> Figure:
    """Time streams of pulls from two readers of one store, one with TLS."""
    request = reader_pb2.PullStreamRequest(
        topic=produce.TOPIC, max_bytes=echo.RESPONSE_BYTES
    ).SerializeToString()
    size = pull.QUEUE_MIB << 20
    async with channel(secure, tls) as ours, channel(plain) as limit:
        return await drivers.alternate(
            "pull stream over TLS, 1 MiB responses",
            "MiB/s",
            PULL_WANTED,
            lambda: drivers.time_source(ours, PULL_STREAM, request, at_least=size),
            lambda: drivers.time_source(limit, PULL_STREAM, request, at_least=size),
            rounds=rounds,
            limit_name="plaintext",
        )


def run(*, rounds: int) -> list[Figure]:
    """Start services with and without TLS, and time them in turn."""
    burst = (*produce.BURSTS, *produce.COLD)
    with drivers.scratch_store() as store:
        tls, flags = certificates(store.parent / "certs")
        with drivers.service("writer", store, *burst) as (writer, _):
            with (
                drivers.service("reader", store) as (reader, _),
                drivers.service("reader", store, *flags) as (secure_reader, _),
            ):
                loops.run(produce.fill(writer, reader, pull.FRAMES))
                figures = [loops.run(measure_pull(secure_reader, reader, tls, rounds=rounds))]
            secure_store = store.with_name("secure")
            with drivers.service("writer", secure_store, *burst, *flags) as (secure, _):
                figures.append(loops.run(measure_produce(secure, writer, tls, rounds=rounds)))
    return figures


if __name__ == "__main__":
    show(run(rounds=drivers.rounds_given()))
