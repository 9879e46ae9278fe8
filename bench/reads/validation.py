"""What it costs a pull to hold units against records: ``python -m bench.reads.validation [--rounds N]``.

One process, one thread, records in the page cache. The control is the same pull of the same messages, which
believes what the queue's units say, as a broker does; the records' checksums are verified by both. Rounds of
some milliseconds alternate, and the figure is the median of their ratios, by processor time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import Figure, alternate, beside, show
from bench.kernels import BATCH_RECORDS, HOST
from storage.config import StoreConfig
from storage.format.record import encode_for_batch
from storage.kernels import warm
from storage.reader import StoreReader
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.pull import PulledQueue, pull_queue
from storage.view.queues.tag_filter import TagFilter
from storage.writer import StoreWriter

TOPIC: Final = "orders"
QUEUES: Final = 8
TAGS: Final = (
    "created", "paid", "packed", "shipped", "delivered", "returned", "refunded", "closed",
    "tag0", "tag1", "tag2", "tag3", "tag4", "tag5", "tag6", "tag7",
)  # fmt: skip
FAR: Final = "paid"  # no other tag's hash is a bit away from its own
NEAR: Final = "tag3"  # three are: units of three other tags are held against their records, too
LOG_BYTES: Final = 32 << 20  # of a store: more than the processor's caches hold
ROUNDS: Final = 101
ROUND_RECORDS: Final = 10_000
ROUND_PULLS: Final = 200
RATIO_WANTED: Final = 1.05


class Case(NamedTuple):
    """Pulls of so many messages each, with bodies of so many bytes, of all tags or of some."""

    body_bytes: int
    messages: int
    tags: str = ""

    @property
    def name(self) -> str:
        """What the figure is called."""
        which = f", tags {self.tags}" if self.tags else ""
        return f"a pull of {self.messages:,}, bodies of {self.body_bytes:,} bytes{which}"


CASES: Final = (
    Case(1024, 1000), Case(1024, 32), Case(1024, 1),
    Case(100, 1000), Case(100, 32), Case(100, 1),
    Case(1024, 32, FAR), Case(100, 1000, FAR), Case(100, 32, FAR), Case(100, 32, "paid||shipped||closed"),
    Case(1024, 32, NEAR), Case(100, 1000, NEAR), Case(100, 32, NEAR),
)  # fmt: skip


class Believed:
    """A queue whose units are taken as they are."""

    def __init__(self, queue: ConsumeQueueView) -> None:
        self.max_offset = queue.max_offset
        self.min_offset = queue.min_offset
        self.span = queue.span
        self.next_file_offset = queue.next_file_offset

    def rebuilt(self, log: CommitLogView) -> None:
        """Return nothing: no unit is made again from the log."""


def _batches(body_bytes: int) -> list[bytes]:
    """Return batches whose records go to the queues in turn, with tags at random."""
    rng = random.Random(1)

    def record(queue_id: int) -> bytes:
        block = f"UNIQ_KEY\x01{rng.randbytes(16).hex()}\x02TAGS\x01{rng.choice(TAGS)}\x02"
        body = rng.randbytes(body_bytes)
        return encode_for_batch(
            TOPIC, queue_id, body, block.encode(), 0, 0, 1_700_000_000_000, HOST
        )

    return [b"".join(record(i % QUEUES) for i in range(BATCH_RECORDS)) for _ in range(64)]


def fill(directory: Path, body_bytes: int) -> None:
    """Make a store with one topic."""
    config = StoreConfig(commit_log_file_size=2 * LOG_BYTES, append_property_crc=True)
    with StoreWriter.open(directory, config) as writer:
        writer.create_topic(TOPIC, QUEUES)
        for batch in cycle(_batches(body_bytes)):
            writer.append_batch(batch)
            if writer.appended_offset >= LOG_BYTES:
                break


def _pulls(reader: StoreReader, case: Case, queue: PulledQueue) -> Callable[[], float]:
    """Return what pulls its way through the queue, round for round, and returns microseconds a pull."""
    tag_filter = TagFilter(case.tags)
    share = len(tag_filter.tags) / len(TAGS) if case.tags else 1.0
    count = min(max(10, int(ROUND_RECORDS * share) // case.messages), ROUND_PULLS)
    end = queue.max_offset(reader.log.visible_offset, 0)
    at = 0

    def round_() -> float:
        nonlocal at
        begin = time.process_time()
        for _ in range(count):
            pulled = pull_queue(
                reader.log, queue, topic=TOPIC, queue_id=0, queue_offset=at,
                max_messages=case.messages, max_bytes=64 << 20, tag_filter=tag_filter,
            )  # fmt: skip
            at = pulled.next_offset if pulled.next_offset < end else 0
            if not pulled.record_count or pulled.damaged:
                raise RuntimeError(f"{case.name}: a pull at {at} brought nothing, or damage")
        return (time.process_time() - begin) / count * 1e6

    return round_


def measure(reader: StoreReader, case: Case, rounds: int) -> Figure:
    """Time pulls of one case beside the control."""
    queue = reader.queue_view(TOPIC, 0)
    pairs = alternate(
        _pulls(reader, case, queue), _pulls(reader, case, Believed(queue)), rounds=rounds
    )
    return beside(
        case.name,
        "us",
        pairs,
        limit_name="units believed",
        wanted=f"{RATIO_WANTED} x",
        is_reached=lambda _, ratio: ratio <= RATIO_WANTED,
    )


def run(directory: Path, *, rounds: int = ROUNDS, cases: tuple[Case, ...] = CASES) -> list[Figure]:
    """Measure all cases over a store for each size of bodies."""
    warm()
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-validation-", dir=directory) as temporary:
        for body_bytes in dict.fromkeys(case.body_bytes for case in cases):
            store = Path(temporary) / str(body_bytes)
            fill(store, body_bytes)
            with StoreReader.open(store) as reader:
                figures += [
                    measure(reader, case, rounds) for case in cases if case.body_bytes == body_bytes
                ]
    return figures


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path, default=Path(), help="where the files go meanwhile")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    figures = run(arguments.store, rounds=arguments.rounds)
    show(figures)
    for figure in figures:
        ratios = sorted(value / limit for value, limit in figure.rounds if limit)
        low, _, high = statistics.quantiles(ratios, n=4)
        print(f"{figure.name}: {figure.ratio:.3f} (quartiles {low:.3f}, {high:.3f})")


if __name__ == "__main__":
    main()
