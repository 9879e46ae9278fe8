"""stdout and stderr of a process whose work does not depend on anybody who reads them."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import Final

_NAMES: Final = ("stdin", "stdout", "stderr")


def hold() -> None:
    """Open the standard streams that are closed on nothing: a file of the store must not get their numbers.

    Whoever writes to descriptor 2, such as a C library, would write into that file.
    """
    for descriptor, name in enumerate(_NAMES):
        try:
            os.fstat(descriptor)
        except OSError:
            occupy(descriptor, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may have what its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")


def occupy(descriptor: int, flags: int) -> None:
    """Open nothing under a descriptor, which children inherit: no file or socket gets it, and what is printed."""
    null = os.open(os.devnull, flags)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)


def is_unread() -> bool:
    """Return whether stdout is a pipe whose reader has gone."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def say(line: str, *, is_error: bool = False) -> None:
    """Print a line to stdout, or to stderr; where it cannot be written, go on."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr if is_error else sys.stdout, flush=True)


def end() -> None:
    """Write out what is left; drop it where nobody reads it, or the interpreter would end with an error for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                occupy(stream.fileno(), os.O_WRONLY)
