"""One set of real services for the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from faulty_penstock import faulty_fixture as faulty_fixture
from faulty_penstock import running_fixture as running_fixture
from run_cli import Penstock, penstock, small_services
from typer.testing import Result

from services.local_services import LocalServices


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    with small_services(tmp_path_factory.mktemp("cli-services")) as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def no_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nobody's own profiles count in a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


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
