"""``python -m storage.kernels``: compile all kernels into the cache and say how long it took."""

from __future__ import annotations

import sys

from storage.kernels import MODULES, PIPELINE_MODULES, warm
from storage.kernels.primitives.jit import cache_directory, cache_is_writable

seconds = warm((*MODULES, *PIPELINE_MODULES))
where = f"cached in {cache_directory()}" if cache_is_writable() else "not cached: read-only"
sys.stdout.write(f"kernels ready in {seconds:.1f} s, {where}\n")
