"""What a job says on stderr when it is run from the command line."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from golden import golden_copy

from cli.failures import ExitCode

pytestmark = pytest.mark.spark
FILE_BYTES_MAX = 64 << 20  # less than an index file has


def penstock(*words: str, limited: bool = False) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))

    return subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        capture_output=True,
        text=True,
        timeout=250,
        preexec_fn=limit if limited else None,
        check=False,
    )


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(golden_copy("slow", tmp_path))


@pytest.mark.slow
def test_a_job_says_nothing_but_what_it_has_to(store: str) -> None:
    done = penstock("job", "audit", store, "--quiet")
    assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
    assert "0 findings" in done.stdout


@pytest.mark.slow
def test_a_job_that_fails_says_why_in_one_line(store: str, tmp_path: Path) -> None:
    """A task finds the disk full; Spark would report it with two pages of tracebacks."""
    sizes = ("--index-slots", "5000000", "--index-entries", "20000000")
    rebuild = ("job", "rebuild", store, "--to", str(tmp_path / "new"), "--quiet", *sizes)
    failed = penstock(*rebuild, limited=True)
    assert failed.returncode == ExitCode.FAILED
    (line,) = failed.stderr.splitlines()
    assert line.startswith("penstock: no space left for ")
    assert line.endswith(": File too large")


@pytest.mark.slow
def test_debug_shows_all_that_spark_says(store: str, tmp_path: Path) -> None:
    sizes = ("--index-slots", "5000000", "--index-entries", "20000000")
    rebuild = ("job", "rebuild", store, "--to", str(tmp_path / "new"), "--debug", *sizes)
    failed = penstock(*rebuild, limited=True)
    for said in ("Setting default log level", "ERROR Executor", "Traceback", "File too large"):
        assert said in failed.stderr
    assert failed.returncode == ExitCode.FAILED
