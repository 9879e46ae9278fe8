"""Stdout and stderr as every command has them, whatever the caller has given."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final

from services.streams import occupy

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT: Final = 1
STDERR: Final = 2


class _Stdout(io.FileIO):
    """The file behind stdout. Its errors name it."""

    def write(self, data: ReadableBuffer, /) -> int:
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
        occupy(STDOUT, os.O_RDONLY)
    if sys.stderr is None:
        occupy(STDERR, os.O_WRONLY)
        sys.stderr = open(STDERR, "w", closefd=False)  # noqa: SIM115  as long as the process
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Stdout(STDOUT, "wb", closefd=False)),
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
