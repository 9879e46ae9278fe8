"""What a process does not load: it would pay for it with each start."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("services.supervisor", ("grpc", "numba", "numpy")),
        ("cli.main", ("grpc", "numba", "numpy", "pydantic")),
    ],
)
def test_it_is_not_loaded(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print([each for each in {heavy} if each in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
