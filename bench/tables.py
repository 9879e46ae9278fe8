"""Tables, and records one by one, beside the bytes that they are made of: ``python -m bench.tables``.

Bodies of 1 KiB with a key each. A table is pulled with all its usual columns beside the same stream whose
records nobody looks at, and stored beside the same records encoded before. Records are consumed, and the body
of each is read.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench import drivers, produce
from bench.figures import Figure, alternate, beside, command
from penstock import Client, RecordBatch
from penstock.tables import BYTES_AT_ONCE

ROWS: Final = 100_000
BODY_BYTES: Final = 1_024
BATCH_ROWS: Final = 1_500  # as many as one request of produce_arrow has
WANTED: Final = {
    "produce_arrow": 0.7,
    "pull_arrow, ten columns": 0.7,
    "consume, record by record": 0.5,
}


def _table() -> Any:
    data = np.random.default_rng(1).integers(65, 90, ROWS * BODY_BYTES, dtype=np.uint8)
    offsets = np.arange(0, len(data) + 1, BODY_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    body = pa.Array.from_buffers(pa.binary(), ROWS, buffers)
    return pa.table({"body": body, "keys": [f"key-{n}" for n in range(ROWS)]})


def _batches(table: Any) -> list[bytes]:
    bodies, keys = table["body"].to_pylist(), table["keys"].to_pylist()
    encoded = []
    for begin in range(0, ROWS, BATCH_ROWS):
        batch = RecordBatch(produce.TOPIC)
        mine = slice(begin, begin + BATCH_ROWS)
        batch.add_many(bodies[mine], keys=[[key] for key in keys[mine]])
        encoded.append(batch.records())
    return encoded


def _rate(count: int, began: float) -> float:
    return count / (time.perf_counter() - began)


def _pull(client: Client) -> float:
    began = time.perf_counter()
    with client.pull_arrow(produce.TOPIC, 0) as batches:
        return _rate(sum(batch.num_rows for batch in batches), began)


def _pull_bytes(client: Client) -> float:
    began = time.perf_counter()
    with client.pull_stream(produce.TOPIC, 0, 0, max_bytes=BYTES_AT_ONCE) as results:
        return _rate(sum(len(result.records) for result in results), began)


def _consume(client: Client) -> float:
    began = time.perf_counter()
    with client.consume(produce.TOPIC, follow=False) as records:
        return _rate(sum(len(record.body) > 0 for record in records), began)


def _store(client: Client, table: Any) -> float:
    began = time.perf_counter()
    return _rate(client.produce_arrow(produce.TOPIC, table).row_count, began)


def _store_bytes(client: Client, batches: list[bytes]) -> float:
    began = time.perf_counter()
    return _rate(sum(client.produce_batch(each).record_count for each in batches), began)


def run(*, rounds: int = drivers.ROUNDS) -> list[Figure]:
    """Measure both ways in turn."""
    table = _table()
    encoded = _batches(table)
    with (
        drivers.scratch_store() as home,
        drivers.service("writer", home, *produce.BURSTS) as (writer, _),
        drivers.service("reader", home) as (reader, _),
        Client(writer=writer, reader=reader) as client,
    ):
        client.wait_ready(services=["writer", "reader"])
        client.create_topic(produce.TOPIC, queues=1)
        pairs = {
            "produce_arrow": alternate(
                lambda: _store(client, table), lambda: _store_bytes(client, encoded), rounds=rounds
            ),
            "pull_arrow, ten columns": alternate(
                lambda: _pull(client), lambda: _pull_bytes(client), rounds=rounds
            ),
            "consume, record by record": alternate(
                lambda: _consume(client), lambda: _pull_bytes(client), rounds=rounds
            ),
        }
    return [_figure(name, measured) for name, measured in pairs.items()]


def _figure(name: str, pairs: list[tuple[float, float]]) -> Figure:
    wanted = WANTED[name]
    return beside(
        f"{name}, 1 KiB", "msg/s", pairs, limit_name="the same records as bytes",
        wanted=f"{wanted} x", is_reached=lambda _, ratio: ratio >= wanted,
    )  # fmt: skip


if __name__ == "__main__":
    command(run)
