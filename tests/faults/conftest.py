"""For tests of faults: a directory in memory, and what each test counted, printed at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from flip_bed import FlipBed

_REPORT: list[str] = []


@contextmanager
def _in_memory(otherwise: Path) -> Iterator[Path]:
    if not Path("/dev/shm").is_dir():
        yield otherwise
        return
    path = Path(tempfile.mkdtemp(prefix="penstock-faults-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory whose syncs cost nothing, where there is memory for files."""
    with _in_memory(tmp_path) as path:
        yield path


@pytest.fixture(scope="module")
def whole_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlipBed]:
    """One for all tests of a module: each damage is undone before the next."""
    with _in_memory(tmp_path_factory.mktemp("bed")) as path:
        yield FlipBed(path)


@pytest.fixture
def fault_report() -> list[str]:
    """Lines that the end of the run prints."""
    return _REPORT


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REPORT:
        terminalreporter.section("faults")
        for line in _REPORT:
            terminalreporter.write_line(line)
