"""Batch loops over bytes, compiled ahead of time; see :mod:`storage.kernels.primitives.jit`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from time import perf_counter
from typing import Final

MODULES: Final = (
    "primitives.crc", "scan", "client_records", "batch", "queue", "unit_order", "unit_record", "pull", "filters.property_values",
    "lookup", "index.checksums", "index.entries", "index.shape", "staged", "encode", "message_slices",
    "copies.records", "copies.dead_letters", "timers.parking", "timers.delivery",
    "leases.records", "leases.rows", "leases.replay", "leases.handles", "producers.sequences",
)  # fmt: skip
PIPELINE_MODULES: Final = ("index.chains", "placing", "same_keys", "arrow.columnar", "arrow.gather")


def warm(modules: Iterable[str] = MODULES) -> float:
    """Load kernels, compiling those that the cache lacks; return the seconds it took.

    A serving process calls this before it listens, so that no request waits for a compiler.
    """
    begin = perf_counter()
    for name in modules:
        import_module(f"{__name__}.{name}")
    return perf_counter() - begin
