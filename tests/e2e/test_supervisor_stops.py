"""A supervisor that is stopped at any moment stops everything, which is not a failure."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from real_processes import supervisor, until


@pytest.mark.parametrize("delay_s", [0.0, 0.3, 0.8])
def test_a_stop_while_services_start_is_exit_code_0(tmp_path: Path, delay_s: float) -> None:
    """Also when a service gets the signal before it can handle it."""
    with supervisor(tmp_path / "store") as process:
        until(lambda: "store" in process.text(), 60)
        time.sleep(delay_s)
        assert process.stop(signal.SIGINT) == 0, process.text()
    assert process.output[-1] == "penstock: stopped"
