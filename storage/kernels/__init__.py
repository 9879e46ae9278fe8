"""Batch loops over bytes, compiled ahead of time; see :mod:`storage.kernels.primitives.jit`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from time import perf_counter
from typing import Final

MODULES: Final = (  # two processes that take them in this order seldom want the same one
    "primitives.crc", "scan", "leases.runs", "client_records", "batch", "copies.records", "timers.parking",
    "timers.delivery", "copies.dead_letters", "index.entries", "index.shape", "leases.records",
    "leases.handles", "queue", "unit_order", "unit_record", "pull", "filters.property_values", "lookup", "staged", "encode",
    "message_slices", "producers.sequences",
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
