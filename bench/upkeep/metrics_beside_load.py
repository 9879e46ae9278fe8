"""What metrics cost a stream of batches: ``python -m bench.upkeep.metrics_beside_load [--rounds N]``.

Two writers, each with a store of its own: one has metrics and is scraped once a second, the other has none.
Streams of batches to them alternate as beside the scrub. The figure is the median of the rounds' ratios of
processor time.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.figures import Figure, beside, command
from bench.upkeep.scrub_beside_load import ROUNDS, SECONDS, alternate, two_writers
from services import loops
from services.rpc.ports import keep_port

DEARER_WANTED: Final = 1.03


@contextmanager
def _scraped(page: str) -> Iterator[None]:
    """Read a page once a second meanwhile; a writer that is stopped answers when it goes on."""
    done = threading.Event()
    pages: list[bytes] = []

    def read() -> None:
        while not done.wait(1.0):
            with urllib.request.urlopen(f"http://{page}/metrics", timeout=30) as answer:
                pages.append(answer.read())

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield
    finally:
        done.set()
        reading.join()
    if not pages or b"penstock_rpc_seconds" not in pages[-1]:
        raise RuntimeError("no metrics were read")


def run(*, rounds: int = ROUNDS) -> list[Figure]:
    """Measure both sides in turn."""
    page, kept = keep_port("127.0.0.1:0")
    flags = ("--metrics-listen", page), ("--metrics-listen", "none")
    with kept, two_writers(*flags) as services, _scraped(page):
        found = loops.run(alternate(services, rounds, SECONDS))
    return [
        beside(
            "produce stream with metrics: processor time of a message", "us",
            [(ours[1], other[1]) for ours, other in found], limit_name="without",
            wanted=f"{DEARER_WANTED} x at most", is_reached=lambda _, ratio: ratio <= DEARER_WANTED,
        )
    ]  # fmt: skip


if __name__ == "__main__":
    command(run)
