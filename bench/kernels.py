"""Building queues and the index from the log, without the store around it: ``python -m bench.kernels``.

Everything runs in one process over 32 MiB of records in memory. The limit of both is a walk of these records.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from bench.figures import Figure, alternate, beside, command
from storage.format.hosts import encode_host
from storage.format.index import file_size
from storage.format.record import encode_for_batch
from storage.kernels import batch, client_records, columns, index, queue, scan

BATCH_RECORDS: Final = 64
RECORD_SIZE: Final = 1024
BATCHES: Final = 512
QUEUES: Final = 8
ROUNDS: Final = 7
INDEX_SLOTS: Final = 5_000_000  # a broker's default, so that slots miss the processor's caches
INDEX_ENTRIES: Final = 2_000_001
HOST: Final = "127.0.0.1:10911"
QUEUES_WANTED: Final = 3e6
INDEX_WANTED: Final = 1e6


def client_batch(rng: random.Random, queue_id: int, body_bytes: int | None = None) -> bytes:
    """Return 64 records for one queue, with tag and two keys, a property CRC reserved.

    Each is 1 KiB as a whole, or has a body of so many bytes.
    """
    records = []
    for number in range(BATCH_RECORDS):
        block = (
            f"UNIQ_KEY\x01{rng.randbytes(16).hex()}\x02KEYS\x01order-{rng.randrange(10**9)}\x02"
            f"TAGS\x01tag{number % 5}\x02WAIT\x01true\x02"
        ).encode()
        empty = encode_for_batch("orders", queue_id, b"", block, 0, 0, 1_700_000_000_000, HOST)
        body = rng.randbytes(RECORD_SIZE - len(empty) if body_bytes is None else body_bytes)
        records.append(
            encode_for_batch("orders", queue_id, body, block, 0, 0, 1_700_000_000_000, HOST)
        )
    return b"".join(records)


class Log:
    """Records as a log has them, and the arrays of what is built from them; each method builds once."""

    def __init__(self) -> None:
        rng = random.Random(1)
        self.data = np.zeros(BATCHES * (BATCH_RECORDS * RECORD_SIZE + 4096), np.uint8)
        self.end = self._place([client_batch(rng, number % QUEUES) for number in range(16)])
        many = BATCHES * BATCH_RECORDS
        self.rows = columns.new_rows(many)
        self.groups, self.firsts, self.sizes = (np.zeros(many, np.int64) for _ in range(3))
        self.units = np.zeros(20 * many, np.uint8)
        self.starts, self.queue_offsets = np.zeros(many + 1, np.int64), np.zeros(many, np.int64)
        self.index_file = np.zeros(file_size(INDEX_SLOTS, INDEX_ENTRIES), np.uint8)
        self.index_file[:] = 0  # its pages are there
        self.hashes, self.places, self.times = (np.zeros(3 * many, np.int64) for _ in range(3))
        self.index_base = 0

    def _place(self, batches: list[bytes]) -> int:
        """Lay out batches one after the other, as an append does; return where they end."""
        rows, placed = columns.new_rows(BATCH_RECORDS), columns.new_rows(BATCH_RECORDS)
        groups, firsts, sizes, offsets = (np.zeros(BATCH_RECORDS, np.int64) for _ in range(4))
        host = np.frombuffer(encode_host(HOST), np.uint8)
        position = 0
        for number in range(BATCHES):
            source = np.frombuffer(batches[number % len(batches)], np.uint8)
            count, _, stop = client_records.validate_batch(source, rows)
            assert stop == columns.STOP_END
            batch.group_by_queue(source, rows, count, groups, firsts, sizes)
            batch.placed_size(source, rows, count, 8, True, sizes)
            position = batch.place_records(
                self.data, position, source, rows, count, groups, offsets,
                position, 1_700_000_000_000, host, True, placed, 0, 0,
            )  # fmt: skip
        return int(position)

    def scan(self) -> int:
        """Walk the records, offsets checked and tags hashed."""
        checks = columns.CHECK_COMMIT_OFFSET
        count, _, _ = scan.scan_records(self.data, 0, self.end, 0, checks, self.rows)
        return int(count)

    def queues(self) -> int:
        """From log bytes to consume queue units, grouped by queue; returns how many units."""
        count = self.scan()
        _, unit_count = queue.build_units(
            self.data, self.rows, count, 0, self.groups, self.firsts, self.sizes,
            self.units, self.starts, self.queue_offsets,
        )  # fmt: skip
        return int(unit_count)

    def index(self) -> int:
        """From log bytes to index entries: scan, hash two keys a record, put; returns how many keys."""
        count = self.scan()
        keys, _ = index.key_hashes(
            self.data, self.rows, 0, count, self.index_base, self.hashes, self.places, self.times
        )
        done = index.put_keys(
            self.index_file, INDEX_SLOTS, INDEX_ENTRIES, self.hashes, self.places, self.times, 0, keys,
        )  # fmt: skip
        assert done == keys, "the index file is full"
        self.index_base += self.end
        return int(keys)


def run(*, rounds: int = ROUNDS) -> list[Figure]:
    """Build the queues' units and the index from the log, each beside a walk of its records."""
    log = Log()
    figures = []
    for name, unit, build, wanted in (
        ("ConsumeQueue build from the log", "entries/s", log.queues, QUEUES_WANTED),
        ("index build from the log", "keys/s", log.index, INDEX_WANTED),
    ):
        pairs = alternate(lambda: _rate(build), lambda: _rate(log.scan), rounds=rounds)  # noqa: B023
        figures.append(
            beside(
                name, unit, pairs, limit_name="records walked", wanted=f"{wanted:,.0f}",
                is_reached=lambda rate, _: rate >= wanted,  # noqa: B023
            )
        )  # fmt: skip
    return figures


def _rate(build: Callable[[], int]) -> float:
    begin = time.perf_counter()
    return build() / (time.perf_counter() - begin)


if __name__ == "__main__":
    command(run)
