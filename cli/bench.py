"""``penstock bench``: how fast the running services take and give messages, from this machine."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import Session, counted, print_json, session_of

if TYPE_CHECKING:
    from penstock import Client

PULL_BYTES: Final = 1 << 20
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
FORMAT: Final = 1  # of a result file
_STEP: Final = 2**0.5  # between two bounds of the histogram
_BAR_MAX: Final = 40  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to measure with; sizes are bytes."""

    messages: int
    body_size: int
    queues: int
    singles: int


def bench(
    context: typer.Context,
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, help="How many.")] = 200_000,
    size: Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of a body.")] = 1_024,
    queues: Annotated[int, typer.Option("--queues", "-q", min=1, help="Of the topic.")] = 8,
    singles: Annotated[
        int, typer.Option(min=0, help="Messages stored one by one, to see the latency.")
    ] = 500,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the topic.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the result, for --compare.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Show each number beside that of an earlier result."),
    ] = None,
) -> None:
    """Store and read back messages in a topic of its own, and print rates and latencies.

    A ratio of --compare is this run's number by the earlier one's. Runs of another load are not compared.
    """
    session = session_of(context)
    topic = f"bench-{secrets.token_hex(4)}"
    load = Load(messages=messages, body_size=size, queues=queues, singles=singles)
    earlier = None if compare is None else _earlier(compare, load)
    with session.client() as client:
        client.create_topic(topic, queues=queues)
        try:
            rows = [_stream(session, client, topic, load), _pull(session, client, topic, load)]
            took_ms = _latency(client, topic, load)
        finally:
            if not keep:
                client.delete_topic(topic)
    if took_ms:
        seconds = sum(took_ms) / 1e3
        rows.append(_rate("store, one by one", load.singles, load, seconds) | _percentiles(took_ms))
    result = {
        "format": FORMAT,
        "load": asdict(load),
        "rows": rows,
        "histogram": _histogram(took_ms),
    }
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if session.as_json:
        print_json(result | ({} if earlier is None else {"compared": _compared(rows, earlier)}))
        return
    title = f"{counted(messages, 'message')} of {counted(size, 'byte')}, {counted(queues, 'queue')}"
    session.show([{name: row.get(name, "") for name in _names(rows)} for row in rows], title=title)
    if took_ms:
        _show_histogram(session, _histogram(took_ms))
    if earlier is not None:
        session.show(_compared(rows, earlier), title=f"beside {compare}")


def _earlier(path: Path, load: Load) -> list[dict[str, Any]]:
    """Return the rows of a result file. Raises CommandFailed for another load, or what is none."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        found, rows = result["load"], result["rows"]
        for row in rows:
            _ = [float(value) for name, value in row.items() if name != "what"]
        if result["format"] != FORMAT or not all("what" in row for row in rows):
            raise ValueError("another format")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(
            f"{path}: no result of penstock bench: {error}", ExitCode.USAGE
        ) from error
    if found != asdict(load):
        raise CommandFailed(f"{path}: of another load: {found}", ExitCode.USAGE)
    return list(rows)


def _compared(rows: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each number with the earlier one, and their ratio."""
    before = {row["what"]: row for row in earlier}
    return [
        {
            "what": row["what"],
            "number": name.replace("_", " "),
            "before": before[row["what"]][name],
            "now": value,
            "ratio": round(value / before[row["what"]][name], 2)
            if before[row["what"]][name]
            else "",
        }
        for row in rows
        for name, value in row.items()
        if name not in ("what", "messages") and name in before.get(row["what"], {})
    ]


def _names(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _percentiles(took_ms: list[float]) -> dict[str, float]:
    """Return latencies that so many of a hundred messages had at most."""
    took_ms = sorted(took_ms)
    found = {}
    for percent in PERCENTILES:
        place = min(len(took_ms) - 1, int(len(took_ms) * percent / 100))
        found[f"p{percent:g}_ms"] = round(took_ms[place], 3)
    return found | {"max_ms": round(took_ms[-1], 3)}


def _histogram(took_ms: list[float]) -> list[dict[str, Any]]:
    """Return how many messages took up to each bound, and longer than the one before; empty ends are left out."""
    found: list[dict[str, Any]] = []
    left = sorted(took_ms)
    bound = 0.01
    while left:
        count = sum(each <= bound for each in left)
        if count or found:
            found.append({"up_to_ms": round(bound, 3), "messages": count})
        left = left[count:]
        bound *= _STEP
    return found


def _show_histogram(session: Session, histogram: list[dict[str, Any]]) -> None:
    most = max((each["messages"] for each in histogram), default=0)
    session.show(
        [
            each | {"": "█" * round(each["messages"] / most * _BAR_MAX) or "▏"}
            for each in histogram
            if each["messages"]
        ],
        title="store, one by one: latencies",
        empty="",
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
            with client.pull_stream(topic, queue_id, 0, max_bytes=PULL_BYTES) as answers:
                for answer in answers:
                    read += len(answer.records)
                    advance(len(answer.records))
    if read != load.messages:
        raise CommandFailed(f"stored {load.messages} messages and read back {read}")
    return _rate("pull stream, 1 MiB answers", read, load, time.monotonic() - began)


def _latency(client: Client, topic: str, load: Load) -> list[float]:
    """Store messages one after the other and return how long each took, in milliseconds."""
    body = secrets.token_bytes(load.body_size)
    took_ms = []
    for _ in range(load.singles):
        start = time.monotonic()
        client.produce(topic, body)
        took_ms.append((time.monotonic() - start) * 1000)
    return took_ms


def _rate(what: str, count: int, load: Load, seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "messages": count,
        "seconds": round(seconds, 3),
        "per_second": round(count / seconds),
        "mib_per_second": round(count * load.body_size / seconds / 2**20, 1),
    }
