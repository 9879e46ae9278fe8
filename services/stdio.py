"""Stdin, stdout and stderr of services and commands, whatever the caller has given.

A service goes on without them. A command whose stdout cannot be written fails.
"""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import Any, Final

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


class _Stdout(io.FileIO):
    """The file behind stdout. Its errors name it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "stdout"
            raise


def open_standard_streams() -> None:
    """Have stdout take any text, with escapes for what its encoding lacks, and its errors name it.

    A stream that the caller has closed is there nevertheless: a write to stdout fails, what goes to stderr is lost.
    """
    given = sys.stdout
    if given is None:
        occupy(1, os.O_RDONLY)
    if sys.stderr is None:
        occupy(2, os.O_WRONLY)
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  as long as the process
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Stdout(1, "wb", closefd=False)),
        encoding=(given or sys.stderr).encoding,
        errors="backslashreplace",
        line_buffering=isinstance(given, io.TextIOWrapper)
        and (given.line_buffering or given.write_through),
    )


def stdout_problem() -> str:
    """Write what stdout still holds; return why it cannot be written, "" if it is or nobody reads it any more.

    What cannot be written is given up, or it would be tried again at exit.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  what is flushed at exit goes there
        return "" if isinstance(error, BrokenPipeError) else f"stdout: {error.strerror}"
    return ""
