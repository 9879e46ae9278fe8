"""Runs the command line in process, as the console script would."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from typer.testing import CliRunner, Result

from cli.main import app

Penstock = Callable[..., Result]


def penstock(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run one command; the result has ``exit_code``, ``stdout`` and ``stderr``."""
    return CliRunner().invoke(
        app, [str(argument) for argument in arguments], input=stdin, prog_name="penstock"
    )


def json_lines(result: Result) -> list[dict[str, Any]]:
    """Return the JSON lines a command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]
