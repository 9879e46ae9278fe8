"""Calls of the operating system that fail in a process, by a library that is preloaded into it."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).with_name("failing_calls.c")
ROOM_CALLS = ("open", "link", "fallocate", "ftruncate", "mmap")
ROOM_ERRORS = (errno.ENOSPC, errno.EMFILE, errno.ENOMEM)
SHORT = 0  # in place of an error: half of the bytes


class FailingCall(NamedTuple):
    """The ``first``-th call of a kind fails, and ``count`` in all; 0: every one from there on."""

    call: str
    error: int
    first: int = 1
    count: int = 1

    @property
    def goes_by(self) -> bool:
        """Whether nothing was done for want of room: the service works again when there is some."""
        return self.call in ROOM_CALLS and self.error in ROOM_ERRORS

    @property
    def name(self) -> str:
        return f"{self.call} {errno.errorcode.get(self.error, 'short')}"


class FailingCalls:
    """A switch: while it is on, the calls of a process that has ``environment_of`` fail."""

    def __init__(self, directory: Path) -> None:
        self._library = compiled(directory)
        self._directory = directory
        self._switch = directory / "failing"

    def environment_of(self, store: Path, failing: FailingCall) -> dict[str, str]:
        """Return what a process on a store has to be started with."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAILING_BELOW": str(store),
            "FAILING_CALL": failing.call,
            "FAILING_ERROR": str(failing.error),
            "FAILING_FROM": str(failing.first),
            "FAILING_COUNT": str(failing.count),
            "FAILING_SWITCH": str(self._switch),
            "FAILING_LOG": str(self._directory / "failed"),
        }

    def switch_on(self) -> None:
        self._switch.touch()

    def switch_off(self) -> None:
        self._switch.unlink(missing_ok=True)

    def failed(self) -> list[str]:
        """Return the calls that have failed, each with its number and path."""
        log = self._directory / "failed"
        return log.read_text().splitlines() if log.exists() else []


def compiled(directory: Path) -> Path:
    """Return the library, compiled into a directory; skips the test where there is no gcc."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("there is no gcc")
    library = directory / "failing_calls.so"
    command = [gcc, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"gcc makes no library: {done.stderr[-300:]}")
    return library
