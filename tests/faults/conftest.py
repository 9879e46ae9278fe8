"""For tests of faults: a directory in memory, and what each test counted, printed at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_REPORT: list[str] = []


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory whose syncs cost nothing, where there is memory for files."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="penstock-faults-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fault_report() -> list[str]:
    """Lines that the end of the run prints."""
    return _REPORT


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REPORT:
        terminalreporter.section("faults")
        for line in _REPORT:
            terminalreporter.write_line(line)
