"""The Python that Spark is given on the driver's machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.session.python import quick_python


def said(program: str, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_daemon_of_spark_is_the_one_that_has_the_kernels_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of planning have no setting for it: each would import the kernels again."""
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    python = quick_python(tmp_path)

    assert said(python, "-m", "pyspark.daemon", "a worker") == "-m pipeline.session.daemon a worker"
    assert said(python, "-m", "pyspark.worker") == "-m pyspark.worker"
    assert said(python, "-c", "a program") == "-c a program"


def test_it_is_this_python(tmp_path: Path) -> None:
    program = "import sys; print(sys.prefix)"

    assert said(quick_python(tmp_path), "-c", program) == sys.prefix


def test_without_a_place_to_write_to_python_is_itself(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()

    assert quick_python(tmp_path / "cache") == sys.executable
