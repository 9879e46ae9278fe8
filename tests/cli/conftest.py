"""One set of real services for the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from run_cli import Penstock, penstock
from typer.testing import Result

from cli.local_services import NAMES, LocalServices

SMALL_FILES = (
    "--commit-log-file-size=1MiB",
    "--consume-queue-file-size=20000",
    "--index-slot-count=1000",
    "--index-entry-count=4000",
)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    home = tmp_path_factory.mktemp("cli-services")
    started = LocalServices.start(
        home / "store",
        home / "services.log",
        options=SMALL_FILES,
        addresses=dict.fromkeys(NAMES, "127.0.0.1:0"),
    )
    yield started
    started.stop()


@pytest.fixture
def run(services: LocalServices) -> Penstock:
    """Runs a command against the services."""

    def run_command(*arguments: object, stdin: str | bytes | None = None) -> Result:
        flags = [part for n, a in services.addresses.items() for part in (f"--{n}", a)]
        return penstock(*flags, *arguments, stdin=stdin)

    return run_command


_numbers = count()


@pytest.fixture
def topic(run: Penstock, worker_id: str) -> str:
    """A topic of its own with two queues."""
    name = f"cli-{worker_id}-{next(_numbers)}"
    assert run("topic", "create", name, "--queues", 2).exit_code == 0
    return name


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    """A directory for a store that the test makes itself."""
    return tmp_path / "store"
