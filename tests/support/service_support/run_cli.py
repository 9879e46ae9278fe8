"""Runs the command line in process, as the console script would, and the services it talks to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from cli.main import app
from services.local_services import NAMES, LocalServices

Penstock = Callable[..., Result]
SMALL_FILES = (
    "--commit-log-file-size=1MiB",
    "--consume-queue-file-size=20000",
    "--index-slot-count=1000",
    "--index-entry-count=4000",
)


@contextmanager
def small_services(home: Path, *options: str, **addresses: str) -> Iterator[LocalServices]:
    """Real services with a store of small files in a directory, on free ports where no address is given."""
    started = LocalServices.start(
        home / "store",
        home / "services.log",
        options=(*SMALL_FILES, *options),
        addresses={**dict.fromkeys(NAMES, "127.0.0.1:0"), **addresses},
    )
    try:
        yield started
    finally:
        started.stop()


def penstock(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run one command; the result has ``exit_code``, ``stdout`` and ``stderr``."""
    return CliRunner().invoke(
        app, [str(argument) for argument in arguments], input=stdin, prog_name="penstock"
    )


def json_lines(result: Result) -> list[dict[str, Any]]:
    """Return the JSON lines a command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]
