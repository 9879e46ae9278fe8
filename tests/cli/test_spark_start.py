"""What a start says is dropped, unless it fails; what is said later comes through."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from cli.jobs.spark_start import quiet_start

STANDS_FOR_JAVA = """
import sys, time
print("a greeting", file=sys.stderr, flush=True)
print("ready", flush=True)
sys.stdin.readline()
print("an error", file=sys.stderr, flush=True)
"""


def start_java() -> subprocess.Popen[str]:
    java = subprocess.Popen(
        [sys.executable, "-c", STANDS_FOR_JAVA],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert java.stdout is not None and java.stdout.readline() == "ready\n"
    return java


def stderr_with(capfd: pytest.CaptureFixture[str], wanted: str) -> str:
    """Return what stands on stderr once it has ``wanted``, which comes through a thread."""
    said = ""
    until = time.monotonic() + 20
    while wanted not in said and time.monotonic() < until:
        said += capfd.readouterr().err
        time.sleep(0.01)
    return said


def test_a_start_is_silent_and_what_comes_later_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_start():
        java = start_java()
        os.write(2, b"a warning\n")
    os.write(2, b"our own\n")
    assert stderr_with(capfd, "our own\n") == "our own\n"
    java.communicate("go on\n", timeout=20)
    assert stderr_with(capfd, "an error\n") == "an error\n"


def test_a_start_that_fails_prints_all_output(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), quiet_start():
        start_java().communicate("go on\n", timeout=20)
        raise KeyError
    assert capfd.readouterr().err == "a greeting\nan error\n"


def test_more_than_a_pipe_holds_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    line = b"x" * 99 + b"\n"
    with pytest.raises(KeyError), quiet_start():
        for _ in range(5000):
            os.write(2, line)
        raise KeyError
    assert len(capfd.readouterr().err) == 5000 * len(line)
