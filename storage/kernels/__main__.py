"""``python -m storage.kernels [MODULE ...]``: compile all kernels, and those of other modules, into the cache."""

from __future__ import annotations

import sys
from importlib import import_module
from time import perf_counter

from storage.kernels import MODULES, PIPELINE_MODULES, warm
from storage.kernels.primitives.jit import cache_directory, cache_is_writable

began = perf_counter()
warm((*MODULES, *PIPELINE_MODULES))
for name in sys.argv[1:]:
    import_module(name)
seconds = perf_counter() - began
where = f"cached in {cache_directory()}" if cache_is_writable() else "not cached: read-only"
sys.stdout.write(f"kernels ready in {seconds:.1f} s, {where}\n")
