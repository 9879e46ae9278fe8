"""Spark's daemon of Python workers, with the kernels loaded before it forks the first one.

A worker then starts in milliseconds instead of importing numba again. Two more costs go here, both
of them paid by the task and not by the read: Spark's worker collects garbage after every task, which
walks everything that was ever imported (70 ms with numba), so all of that is taken out of the
collector's sight; and the allocator gives each batch's buffers back to the kernel, which then has to
clear new pages for the next one, so it keeps them.
"""

from __future__ import annotations

import ctypes
import gc
import runpy
from typing import Final

import pyspark.worker  # noqa: F401  loads what every task would

import pipeline.source.read  # noqa: F401  loads pyarrow and the kernels

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 32 << 20  # glibc's largest mapping threshold; a batch's buffers are smaller


def keep_freed_memory() -> None:
    """Let freed buffers of up to KEPT_BYTES be used again; without glibc nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    mallopt(M_TRIM_THRESHOLD, 4 * KEPT_BYTES)


if __name__ == "__main__":
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
