"""How ``penstock`` and the services tell of wrong usage: one line, and exit code 2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import typer

from services import stdio

EXIT_USAGE: Final = 2
CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"]}


@contextlib.contextmanager
def wrong_usage_in_one_line(program: str = "penstock") -> Iterator[None]:
    """Print what typer finds wrong with the arguments as one line, not as a frame of five."""
    try:
        yield
    except Exception as error:
        # A group without a command raises its help, which stands on stdout by then.
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise
        # An option whose value is left out is found by a parser that knows no command.
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else program
        problem = " ".join(str(error.format_message()).split()).rstrip(".")
        stdio.say(f"{command}: {problem}; see {command} --help", is_error=True)
        raise typer.Exit(EXIT_USAGE) from None
