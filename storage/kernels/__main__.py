"""``python -m storage.kernels [MODULE ...]``: compile all kernels, and those of other modules, into the cache."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pkgutil import walk_packages
from time import perf_counter
from typing import Final

from storage import kernels

PROCESSES_MAX: Final = 8


def compile_module(name: str) -> None:
    """Import a module; its kernels are compiled unless another process has."""
    import_module(name)


if __name__ == "__main__":
    began = perf_counter()
    own = [each.name for each in walk_packages(kernels.__path__, "storage.kernels.")]
    cores = min(len(os.sched_getaffinity(0)), PROCESSES_MAX)
    with ProcessPoolExecutor(cores) as processes:
        list(processes.map(compile_module, [*own, *sys.argv[1:]]))
    seconds = perf_counter() - began

    from storage.kernels.primitives.jit import cache_directory, cache_is_writable

    where = f"cached in {cache_directory()}" if cache_is_writable() else "not cached: read-only"
    sys.stdout.write(f"kernels ready in {seconds:.1f} s, {where}\n")
