"""A read of all columns by Spark: ``python -m bench.spark_read [--store DIR] [--gib 2] [--rounds 5]``.

A store with eight topics of very different sizes is made under ``--store``, kept for the next run, and read
once so that it is in the page cache. The limit is the scan kernel: it walks the same log in this process on
one core.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from bench.figures import Figure, alternate, beside, command, seconds_of
from storage.format.record import encode_for_batch
from storage.store import MessageStore
from storage.view.log.walk import RecordRun, walk_range
from storage.view.store_view import StoreView

MIB: Final = 1 << 20
SHARES: Final = (400, 250, 150, 100, 50, 25, 15, 10)  # of 1000 batches; the last is 1 %
QUEUES: Final = 4
BATCH: Final = 256
HOST: Final = "127.0.0.1:10911"
MIB_WANTED: Final = 1024


def make_store(directory: Path, size: int) -> None:
    """Fill a store with records of about 1.1 KiB, each with tag, key and unique id."""
    rng = random.Random(7)
    with MessageStore.open(directory) as store:
        for topic in range(len(SHARES)):
            store.create_topic(f"topic{topic}", QUEUES)
        batches = {
            (topic, queue_id): _batch(rng, f"topic{topic}", queue_id)
            for topic in range(len(SHARES))
            for queue_id in range(QUEUES)
        }
        written = 0
        while written < size:
            topic = rng.choices(range(len(SHARES)), SHARES)[0]
            batch = batches[topic, rng.randrange(QUEUES)]
            store.put_batch(batch)
            written += len(batch)


def _batch(rng: random.Random, topic: str, queue_id: int) -> bytes:
    return b"".join(
        encode_for_batch(
            topic, queue_id, rng.randbytes(900),
            f"UNIQ_KEY\x01{rng.randbytes(16).hex()}\x02KEYS\x01k{number}\x02"
            f"TAGS\x01tag{number % 5}\x02".encode(),
            0, 0, 1_700_000_000_000, HOST,
        )
        for number in range(BATCH)
    )  # fmt: skip


def walk(store: StoreView) -> None:
    """Scan every record with every checksum, and make nothing of it."""
    for file in store.log.entries:
        data = store.log.map(file)
        end = min(file.end_offset, store.bounds.end_offset)
        begin = max(file.start_offset, store.bounds.min_offset)
        for step in walk_range(data, file.start_offset, begin, end):
            assert isinstance(step, RecordRun)


def run(*, store: Path = Path(".bench-spark"), gib: float = 2.0, rounds: int = 5) -> list[Figure]:
    """Read all columns into Spark's noop sink, beside the scan kernel."""
    from pipeline import build_session

    if not store.exists():
        make_store(store, int(gib * (1 << 30)))
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(4 * MIB):
                    pass
    view = StoreView.open(store)
    log_mib = (view.bounds.end_offset - view.bounds.min_offset) / MIB
    spark = build_session("local[2]", "penstock bench", {"spark.log.level": "ERROR"})

    def read() -> None:
        frame = spark.read.format("penstock").load(str(store.resolve()))
        frame.write.format("noop").mode("overwrite").save()

    pairs = alternate(
        lambda: log_mib / seconds_of(read),
        lambda: log_mib / seconds_of(lambda: walk(view)),
        rounds=rounds,
    )
    spark.stop()
    return [
        beside(
            "Spark, all columns, local[2]", "MiB/s of log", pairs, limit_name="scan kernel, 1 core",
            wanted=f"{MIB_WANTED} MiB/s", is_reached=lambda value, _: value >= MIB_WANTED,
        )
    ]  # fmt: skip


if __name__ == "__main__":
    command(run)
