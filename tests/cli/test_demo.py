"""`make demo`: its rows, and how it ends when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cli.demo import data as demo_data
from cli.failures import ExitCode

ROOT = Path(__file__).resolve().parents[2]


def test_the_rows_are_all_there_with_keys_tag_and_queue() -> None:
    """336,776 rows as JSON; each has its carrier+flight as key, its origin as tag."""
    flights = demo_data.load()
    row = json.loads(flights.bodies[0])
    of_queues = [len(flights.rows_of_queue(queue)) for queue in range(demo_data.QUEUE_COUNT)]

    assert len(flights) == 336_776
    assert flights.keys[0] == (row["tailnum"], f"{row['carrier']}{row['flight']}")
    assert flights.tags[0] == row["origin"]
    assert sum(of_queues) == len(flights)
    assert min(of_queues) > 0
    assert len(flights.rows_with_key("N14228")) == 111


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C stops the services, removes their files and is exit code 130, without a traceback."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "cli.demo", "--no-spark"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while not list(tmp_path.glob("penstock-demo-*/store/commitlog/*")):
            assert demo.poll() is None, demo.stdout and demo.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=60)
    finally:
        demo.kill()

    assert demo.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []
