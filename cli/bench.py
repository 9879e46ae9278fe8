"""``penstock bench``: how fast the running services take and give messages, from this machine."""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import CommandFailed
from cli.session import Session, counted, session_of

if TYPE_CHECKING:
    from penstock import Client

PULL_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to measure with; sizes are bytes."""

    messages: int
    body_size: int
    queues: int
    singles: int


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench", rich_help_panel="Topics and messages")(bench)


def bench(
    context: typer.Context,
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, help="How many.")] = 200_000,
    size: Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of a body.")] = 1_024,
    queues: Annotated[int, typer.Option("--queues", "-q", min=1, help="Of the topic.")] = 8,
    singles: Annotated[
        int, typer.Option(min=0, help="Messages stored one by one, to see the latency.")
    ] = 500,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the topic.")] = False,
) -> None:
    """Store and read back messages in a topic of its own, and print rates and latencies."""
    session = session_of(context)
    topic = f"bench-{secrets.token_hex(4)}"
    load = Load(messages=messages, body_size=size, queues=queues, singles=singles)
    with session.client() as client:
        client.create_topic(topic, queues=queues)
        try:
            rows = [
                _stream(session, client, topic, load),
                _pull(session, client, topic, load),
                *_latency(client, topic, load),
            ]
        finally:
            if not keep:
                client.delete_topic(topic)
    session.show(
        rows,
        title=f"{counted(messages, 'message')} of {counted(size, 'byte')},"
        f" {counted(queues, 'queue')}",
    )


def _stream(session: Session, client: Client, topic: str, load: Load) -> dict[str, Any]:
    """Store all messages through the streaming producer."""
    body = secrets.token_bytes(load.body_size)
    began = time.monotonic()
    with (
        session.progress("storing", load.messages) as advance,
        client.producer(batch_bytes=256 << 10, ordered=False) as producer,
    ):
        for number in range(load.messages):
            producer.send(topic, body, queue_id=number % load.queues)
            if number % 1_000 == 0:
                advance(1_000)
        producer.flush()
    return _rate("store, streamed", load.messages, load, time.monotonic() - began)


def _pull(session: Session, client: Client, topic: str, load: Load) -> dict[str, Any]:
    """Read all messages back, undecoded."""
    read = 0
    began = time.monotonic()
    with session.progress("reading", load.messages) as advance:
        for queue_id in range(load.queues):
            offset = 0
            while True:
                answer = client.pull(
                    topic, queue_id, offset, max_messages=1 << 20, max_bytes=PULL_BYTES
                )
                read += len(answer.records)
                advance(len(answer.records))
                if answer.next_offset <= offset or answer.next_offset >= answer.max_offset:
                    break
                offset = answer.next_offset
    if read != load.messages:
        raise CommandFailed(f"stored {load.messages} messages and read back {read}")
    return _rate("pull, 1 MiB answers", read, load, time.monotonic() - began)


def _latency(client: Client, topic: str, load: Load) -> list[dict[str, Any]]:
    """Store messages one after the other and return how long each took."""
    if load.singles < 2:
        return []
    body = secrets.token_bytes(load.body_size)
    took_ms = []
    began = time.monotonic()
    for _ in range(load.singles):
        start = time.monotonic()
        client.produce(topic, body)
        took_ms.append((time.monotonic() - start) * 1000)
    row = _rate("store, one by one", load.singles, load, time.monotonic() - began)
    cuts = statistics.quantiles(took_ms, n=100, method="inclusive")
    row["median_ms"] = round(statistics.median(took_ms), 3)
    row["p99_ms"] = round(cuts[98], 3)
    return [row]


def _rate(what: str, count: int, load: Load, seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "messages": count,
        "seconds": round(seconds, 3),
        "per_second": round(count / seconds),
        "mib_per_second": round(count * load.body_size / seconds / 2**20, 1),
        "median_ms": "",
        "p99_ms": "",
    }
