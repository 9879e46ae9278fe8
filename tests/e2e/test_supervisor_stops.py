"""A supervisor that is stopped at any moment stops everything, which is not a failure."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from real_processes import supervisor, until
from steps_to_try import cases_to_try


def test_a_path_that_stdout_cannot_encode_is_shown_escaped(tmp_path: Path) -> None:
    with supervisor(tmp_path / "größe", PYTHONIOENCODING="ascii") as process:
        until(lambda: "store" in process.text(), 60)
        assert process.stop() == 0, process.text()
    assert r"gr\xf6\xdfe" in process.text()


@pytest.mark.parametrize("delay_s", cases_to_try([0.3, 0.0, 0.8]))
def test_a_stop_while_services_start_is_exit_code_0(tmp_path: Path, delay_s: float) -> None:
    """Also when a service gets the signal before it can handle it."""
    with supervisor(tmp_path / "store") as process:
        until(lambda: "store" in process.text(), 60)
        time.sleep(delay_s)
        assert process.stop(signal.SIGINT) == 0, process.text()
    assert process.output[-1] == "penstock: stopped"
