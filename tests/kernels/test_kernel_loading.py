"""A kernel that is in the cache is loaded without what only numba's compiler needs, and is the same kernel."""

from __future__ import annotations

import subprocess
import sys
import zlib

import numpy as np
import pytest

from storage.kernels.primitives.crc import crc32
from storage.kernels.primitives.jit import cache_is_writable

CODE = """
import sys
import numpy as np
from storage.kernels.primitives.crc import crc32
print("numba.np.arraymath" in sys.modules, crc32(np.frombuffer(b"some bytes", np.uint8), 0, 10))
"""


@pytest.mark.skipif(not cache_is_writable(), reason="each process compiles its kernels itself")
def test_a_cached_kernel_needs_no_compiler() -> None:
    here = crc32(np.frombuffer(b"some bytes", np.uint8), 0, 10)  # it is in the cache from here on
    output = subprocess.check_output([sys.executable, "-c", CODE], text=True)
    assert output.split() == ["False", str(here)]
    assert here == zlib.crc32(b"some bytes") & 0x7FFFFFFF
