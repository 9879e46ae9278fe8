"""Kernels that come from the cache: they work, fail as compiled ones do, and cost no look at what numba can compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from numba import njit

from storage.kernels.primitives.jit import BYTES, UNCOUNTED, int64

KERNEL = """
import sys
from storage.kernels.primitives.jit import int64, kernel
from storage.kernels.primitives.scratch import free_longs, new_longs

@kernel(int64(int64, int64, int64))
def count_of(count, first, second):
    longs = new_longs(count)
    longs[first] = count  # at places that the compiler does not know: it keeps the memory
    size = longs[second]
    free_longs(longs)
    return size

print(count_of(5, 0, 0))
try:
    count_of(1 << 59, 0, 0)
except MemoryError as error:
    print(error)
print("numba.np.polynomial.polynomial_functions" in sys.modules)
"""


def run_in_new_process(directory: Path) -> list[str]:
    module = directory / "kernel_of_a_test.py"
    module.write_text(KERNEL)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(directory)}
    running = subprocess.run(
        [sys.executable, str(module)], env=environment, capture_output=True, text=True, check=True
    )
    return running.stdout.split("\n")[:3]


def test_a_kernel_from_the_cache_does_what_it_did_when_it_was_compiled(tmp_path: Path) -> None:
    compiled, cached = run_in_new_process(tmp_path), run_in_new_process(tmp_path)
    assert compiled == ["5", "a kernel's table", "True"]
    assert cached == ["5", "a kernel's table", "False"]


def test_numba_still_compiles_without_reference_counts() -> None:
    """Else it has renamed or dropped ``_nrt``: kernels are right, and slower by two atomics an array."""
    assert UNCOUNTED

    def first(data: Any) -> Any:
        return data[1:][0]

    counted = njit(int64(BYTES))(first).inspect_llvm()
    uncounted = njit(int64(BYTES), **UNCOUNTED)(first).inspect_llvm()
    assert ["NRT_" in code for found in (counted, uncounted) for code in found.values()] == [
        True,
        False,
    ]
