"""The batch loops alone, each beside its limit: ``python -m bench.kernels [--json FILE] [--store DIR]``.

Everything runs in one process, in rounds that alternate between all measures, and the median of the
rounds is reported, because a shared machine's speed changes from one second to the next. Appends go
into a mapped file of a directory of its own under ``--store`` (default: the current directory), as
does the bare memcpy they are compared with; the file's pages are touched before the first round.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.config import StoreConfig
from storage.files.filesystem import OsFileSystem
from storage.format.hosts import encode_host
from storage.format.index import file_size
from storage.format.record import encode_for_batch
from storage.kernels import batch, client_records, columns, queue, scan, warm
from storage.kernels.index import entries
from storage.writer import StoreWriter

BATCH_RECORDS: Final = 64
RECORD_SIZE: Final = 1024
BATCHES: Final = 512
ROUNDS: Final = 7
INDEX_SLOTS: Final = 5_000_000  # a broker's default, so that slots miss the processor's caches
INDEX_ENTRIES: Final = 2_000_001
HOST: Final = "127.0.0.1:10911"

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class KernelFigure:
    """One rate, in million a second, and what is asked of it."""

    name: str
    unit: str
    rate: float
    wanted: str
    reached: bool
    rounds: list[float]


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


class Loops:
    """The arrays of all measures; each method runs one round and returns how much it did."""

    def __init__(self, target: Bytes, writer: StoreWriter) -> None:
        rng = random.Random(1)
        self.writer = writer
        self.target = target
        self.batches = [client_batch(rng, number % 8) for number in range(16)]
        self.sources = [np.frombuffer(data, np.uint8) for data in self.batches]
        self.rows = columns.new_rows(BATCH_RECORDS)
        self.placed = columns.new_rows(BATCH_RECORDS)
        self.groups, self.firsts, self.sizes = (np.zeros(BATCH_RECORDS, np.int64) for _ in range(3))
        self.offsets = np.zeros(BATCH_RECORDS, np.int64)
        self.host = np.frombuffer(encode_host(HOST), np.uint8)
        self.end = 0
        self.log_rows = columns.new_rows(BATCHES * BATCH_RECORDS)
        many = len(self.log_rows)
        self.log_groups, self.log_firsts, self.log_sizes = (
            np.zeros(many, np.int64) for _ in range(3)
        )
        self.units = np.zeros(20 * many, np.uint8)
        self.starts = np.zeros(many + 1, np.int64)
        self.queue_offsets = np.zeros(many, np.int64)
        self.index_file = np.zeros(file_size(INDEX_SLOTS, INDEX_ENTRIES), np.uint8)
        self.index_file[:] = 0
        self.hashes, self.places, self.times = (np.zeros(3 * many, np.int64) for _ in range(3))
        self.index_base = 0

    def memcpy(self) -> int:
        """Copy batches back to back into the mapped file, nothing else."""
        position = 0
        for number in range(BATCHES):
            source = self.sources[number % 16]
            self.target[position : position + source.size] = source
            position += source.size
        return BATCHES * BATCH_RECORDS

    def place(self) -> int:
        """Validate, group, place and complete batches in the mapped file, CRCs included."""
        position = 0
        for number in range(BATCHES):
            source = self.sources[number % 16]
            count, _, stop = client_records.validate_batch(source, self.rows)
            assert stop == columns.STOP_END
            batch.group_by_queue(source, self.rows, count, self.groups, self.firsts, self.sizes)
            batch.placed_size(source, self.rows, count, 8, True, self.sizes)
            position = batch.place_records(
                self.target, position, source, self.rows, count, self.groups, self.offsets,
                position, 1_700_000_000_000, self.host, True, self.placed, 0, 0,
            )  # fmt: skip
        self.end = position
        return BATCHES * BATCH_RECORDS

    def append(self) -> int:
        """Append batches to a store, asynchronous flush: what a produce stream's server does."""
        for number in range(BATCHES):
            self.writer.append_batch(self.batches[number % 16])
        return BATCHES * BATCH_RECORDS

    def drain(self) -> None:
        """Let the store's own threads finish, so that they do not run in another measure."""
        self.writer.wait_dispatched(self.writer.appended_offset, 60)

    def _scan(self, checks: int) -> int:
        count, _, _ = scan.scan_records(self.target, 0, self.end, 0, checks, self.log_rows)
        return int(count)

    def scan_framing(self) -> int:
        """Walk placed records, offsets checked and tags hashed."""
        return self._scan(columns.CHECK_COMMIT_OFFSET)

    def scan_everything(self) -> int:
        """Walk placed records with both CRCs."""
        return self._scan(columns.CHECK_ALL)

    def queues(self) -> int:
        """From log bytes to consume queue units, grouped by queue."""
        count = self._scan(columns.CHECK_COMMIT_OFFSET)
        _, unit_count = queue.build_units(
            self.target, self.log_rows, count, 0, self.log_groups, self.log_firsts, self.log_sizes,
            self.units, self.starts, self.queue_offsets,
        )  # fmt: skip
        return int(unit_count)

    def index(self) -> int:
        """From log bytes to index entries: scan, hash two keys a record, put."""
        count = self._scan(columns.CHECK_COMMIT_OFFSET)
        keys, _ = entries.key_hashes(
            self.target,
            self.log_rows,
            0,
            count,
            self.index_base,
            self.hashes,
            self.places,
            self.times,
        )
        done = entries.put_keys(
            self.index_file,
            INDEX_SLOTS,
            INDEX_ENTRIES,
            self.hashes,
            self.places,
            self.times,
            0,
            keys,
        )
        assert done == keys, "the index file is full"
        self.index_base += self.end
        return int(keys)


def run(directory: Path, rounds: int = ROUNDS) -> list[KernelFigure]:
    """Measure everything; files go to a temporary directory under ``directory``."""
    warm()
    with tempfile.TemporaryDirectory(prefix="bench-kernels-", dir=directory) as temporary:
        size = BATCHES * (BATCH_RECORDS * RECORD_SIZE + 4096)
        file = OsFileSystem().create(Path(temporary) / "target", size, allocate=True)
        region = file.map(writable=True)
        region.populate(0, size)
        config = StoreConfig(append_property_crc=True, commit_log_file_size=256 << 20)
        with StoreWriter.open(Path(temporary) / "store", config) as writer:
            writer.create_topic("orders", 8)
            rates = _rates(Loops(region.array, writer), rounds)
        region.close()
        file.close()
    return _judge(rates)


def _rates(loops: Loops, rounds: int) -> dict[str, list[float]]:
    measured: dict[str, Callable[[], int]] = {
        "memcpy": loops.memcpy,
        "place": loops.place,
        "append": loops.append,
        "scan": loops.scan_framing,
        "scan-crc": loops.scan_everything,
        "queue": loops.queues,
        "index": loops.index,
    }
    rates: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(rounds + 1):
        for name, loop in measured.items():
            begin = time.perf_counter()
            done = loop()
            seconds = time.perf_counter() - begin
            if number:  # the first round warms caches up
                rates[name].append(done / seconds / 1e6)
            if name == "append":
                loops.drain()
    return rates


def _judge(rates: dict[str, list[float]]) -> list[KernelFigure]:
    median = {name: statistics.median(values) for name, values in rates.items()}
    half_memcpy = 0.5 * median["memcpy"]

    def measure(name: str, title: str, unit: str, wanted: str, least: float) -> KernelFigure:
        return KernelFigure(title, unit, median[name], wanted, median[name] >= least, rates[name])

    append_least = min(1.5, half_memcpy)
    append_wanted = f"1.5 or {half_memcpy:.2f} (0.5 x memcpy)"
    return [
        measure("memcpy", "bare memcpy, 64 x 1 KiB", "M msg/s", "", 0),
        measure("place", "validate and place, 64 x 1 KiB", "M msg/s", append_wanted, append_least),
        measure("append", "StoreWriter.append_batch, 64 x 1 KiB", "M msg/s", append_wanted, append_least),
        measure("scan", "scan, no CRC", "M records/s", "", 0),
        measure("scan-crc", "scan, body and property CRC", "M records/s", "", 0),
        measure("queue", "ConsumeQueue build from the log", "M entries/s", "3", 3),
        measure("index", "index build from the log", "M keys/s", "1", 1),
    ]  # fmt: skip


def table(measures: list[KernelFigure]) -> str:
    """The measures for a terminal."""
    lines = [f"{'measure':<38}{'rate':>8}  {'unit':<12}{'at least':<26}reached"]
    for each in measures:
        verdict = ("yes" if each.reached else "NO") if each.wanted else ""
        lines.append(f"{each.name:<38}{each.rate:>8.2f}  {each.unit:<12}{each.wanted:<26}{verdict}")
    return "\n".join(lines)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--store", type=Path, default=Path(), help="where the files go meanwhile")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    measures = run(arguments.store, arguments.rounds)
    print(table(measures))
    if arguments.json:
        document: dict[str, Any] = {"measures": [asdict(each) for each in measures]}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
