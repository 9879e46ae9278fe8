"""Batch loops over bytes, compiled ahead of time; see :mod:`storage.kernels.jit`."""

from __future__ import annotations

from importlib import import_module
from time import perf_counter
from typing import Final

MODULES: Final = (
    "crc", "scan", "client_records", "batch", "queue", "pull", "lookup", "index", "index_shape",
    "staged", "encode", "plain_message",
)  # fmt: skip


def warm() -> float:
    """Load every kernel, compiling what the cache has not; return the seconds it took.

    A serving process calls this before it listens, so that no request waits for a compiler.
    """
    begin = perf_counter()
    for name in MODULES:
        import_module(f"{__name__}.{name}")
    return perf_counter() - begin
