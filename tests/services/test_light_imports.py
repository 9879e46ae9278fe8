"""What a process does not load: it would pay for it with each start."""

from __future__ import annotations

import subprocess
import sys


def test_a_supervisor_loads_neither_grpc_nor_the_engine() -> None:
    heavy = ("grpc", "numba", "numpy")
    code = (
        f"import services.supervisor, sys; print([each for each in {heavy} if each in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
