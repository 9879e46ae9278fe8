"""What the command line looks like from outside: help, options, errors, start-up time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from run_cli import penstock
from typer.testing import CliRunner

from cli import settings_table
from cli.commands import COMMANDS, PASSED_THROUGH
from cli.failures import CommandFailed, ExitCode, describe
from cli.main import PenstockGroup, hoisted, options
from penstock import errors as client_errors
from services.times import parse_time_ms
from storage import errors as store_errors

ROOT = Path(__file__).resolve().parents[2]


def run_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def test_help_lists_every_command() -> None:
    """Each command stands in the help with a line about it."""
    text = penstock("--help").stdout
    listed = set(re.findall(r"^│ ([a-z]+) +[A-Z]", text, re.MULTILINE))

    assert listed == set(COMMANDS)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - PASSED_THROUGH))
def test_every_command_has_help(command: str) -> None:
    """--help of a command is exit code 0 and names it."""
    result = penstock(command, "--help")

    assert result.exit_code == ExitCode.DONE
    assert f"penstock {command}" in result.stdout
    assert "--json" in result.stdout  # of every command


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command line has imported when it ends."""
    program = (
        f"import sys; sys.argv = ['penstock', *{arguments!r}]\n"
        "from cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


HEAVY = {"grpc", "numpy", "numba", "pydantic", "pandas", "pyarrow", "google.protobuf", "rich.live"}


def test_help_loads_neither_grpc_nor_the_engine() -> None:
    """The command line starts fast: what a command needs is imported when it runs."""
    assert not loaded_by("--help") & HEAVY


def test_a_command_loads_what_it_needs_and_no_other_command() -> None:
    """Typer itself loads pydantic for what is typed; the client does without numpy."""
    assert not loaded_by("profile", "list") & ((HEAVY | {"penstock.wire"}) - {"pydantic"})
    called = loaded_by("topic", "list", "--writer", "127.0.0.1:1", "--timeout", "0.1")
    assert called & set(COMMANDS.values()) == {"cli.topics"}
    assert called & HEAVY <= {"grpc", "google.protobuf", "pydantic"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["topic", "list", "--json"], ["--json", "topic", "list"]),
        (["query", "t", "k", "--reader", "h:1"], ["--reader", "h:1", "query", "t", "k"]),
        (["query", "--reader=h:1", "t"], ["--reader=h:1", "query", "t"]),
        (["pub", "t", "--", "--json"], ["pub", "t", "--", "--json"]),
        (["writer", "--json"], ["writer", "--json"]),
        (["--json", "writer", "--debug"], ["--json", "writer", "--debug"]),
        (["sub", "writer", "--json"], ["--json", "sub", "writer"]),
        (["topic", "list", "--writer"], ["--writer", "topic", "list"]),
    ],
)
def test_global_options_may_stand_anywhere(given: list[str], expected: list[str]) -> None:
    """They move to the front, except after -- and of the services, which have options of their own."""
    front, rest = hoisted(given)
    assert front + rest == expected


def test_addresses_come_from_the_environment() -> None:
    """PENSTOCK_WRITER is used where no flag is given."""
    result = run_process("topic", "list", "--timeout", "1", PENSTOCK_WRITER="127.0.0.1:1")

    assert result.returncode == ExitCode.UNREACHABLE
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandFailed("no", ExitCode.USAGE), ExitCode.USAGE),
        (FileNotFoundError(2, "No such file", "x"), ExitCode.NOT_FOUND),
        (PermissionError(13, "Permission denied", "x"), ExitCode.FAILED),
        (client_errors.InvalidArgument("no"), ExitCode.USAGE),
        (client_errors.TopicExists("no"), ExitCode.USAGE),
        (client_errors.TopicNotFound("no"), ExitCode.NOT_FOUND),
        (client_errors.Unavailable("no"), ExitCode.UNREACHABLE),
        (client_errors.DeadlineExceeded("no"), ExitCode.UNREACHABLE),
        (client_errors.ResourceExhausted("no"), ExitCode.REFUSED),
        (client_errors.FailedPrecondition("no"), ExitCode.REFUSED),
        (client_errors.DataLoss("no"), ExitCode.DAMAGED),
        (client_errors.ServiceFailed("no"), ExitCode.FAILED),
        (store_errors.StoreLocked("no"), ExitCode.LOCKED),
        (store_errors.NotAStore("no"), ExitCode.NOT_A_STORE),
        (store_errors.UnsupportedFormat("no"), ExitCode.NEWER_FORMAT),
        (store_errors.StoreClosed("no"), ExitCode.FAILED),
        (RuntimeError("two\nlines"), ExitCode.FAILED),
    ],
)
def test_every_error_has_one_line_and_a_code(error: Exception, code: ExitCode) -> None:
    """What reaches the top is described on one line with the code of its kind."""
    line, found = describe(error)

    assert found is code
    assert "\n" not in line


def test_a_bug_is_one_line_unless_debug_is_asked_for() -> None:
    """An unexpected error is one line that names --debug; with --debug it is raised."""

    def fail() -> None:
        raise RuntimeError("a bug")

    command = typer.Typer(cls=PenstockGroup, callback=options)
    command.command("fail")(fail)

    quiet = CliRunner().invoke(command, ["fail"])
    loud = CliRunner().invoke(command, ["fail", "--debug"])

    assert (quiet.exit_code, len(quiet.stderr.splitlines())) == (ExitCode.FAILED, 1)
    assert "--debug" in quiet.stderr
    assert isinstance(loud.exception, RuntimeError)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("sub", "orders", "--form", "x"), "penstock sub: No such option: --form"),
        (("sub",), "penstock sub: Missing argument"),
        (("pub", "orders", "--lines"), "penstock: Option '--lines' requires an argument"),
        (("subb", "orders"), "penstock: No such command 'subb'"),
        (("--timeout", "long", "topic", "list"), "penstock: Invalid value for '--timeout'"),
        (("topic", "create", "orders", "--queues", "x"), "penstock topic create: Invalid value"),
        (
            ("job", "audit", "./store", "--chek", "x"),
            "penstock job audit: No such option: --chek",
        ),
    ],
)
def test_wrong_usage_is_one_line_that_says_what(arguments: tuple[str, ...], line: str) -> None:
    """What is wrong with the arguments is reported like every other error, with where to look."""
    result = penstock(*arguments)

    assert result.exit_code == ExitCode.USAGE
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(line)
    assert result.stderr.endswith(f"; see {line.split(':')[0]} --help\n")


def test_a_store_that_cannot_be_made_is_reported_once_and_not_tried_again() -> None:
    """The writer's exit code 4 ends ``serve``; with another one it would be started for ever."""
    services = ("writer", "reader", "indexer", "gateway", "metrics")
    listen = [f"--{service}-listen=127.0.0.1:0" for service in services]
    result = run_process("serve", "--store", "/proc/nowhere/store", *listen)

    assert result.returncode == ExitCode.NOT_A_STORE, result.stderr
    assert result.stderr.count("penstock writer: ") <= 1
    assert "starting it again" not in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1385859600000", 1385859600000), ("2013-12-01T01:00:00Z", 1385859600000)],
)
def test_times_are_milliseconds_or_iso(text: str, expected: int) -> None:
    """Unix milliseconds and ISO 8601 are both taken."""
    assert parse_time_ms(text) == expected


def test_a_time_ago_is_before_now() -> None:
    """15m is a quarter of an hour before 0m."""
    assert 899_000 <= parse_time_ms("0s") - parse_time_ms("15m") <= 901_000


def test_the_settings_table_of_the_docs_is_up_to_date() -> None:
    """docs/operations.md lists exactly the settings there are; `make docs` writes it."""
    page = (ROOT / settings_table.PAGE).read_text(encoding="utf-8")

    assert settings_table.with_table(page) == page


def test_the_docs_list_every_exit_code() -> None:
    """Each exit code stands in the table of docs/operations.md."""
    page = (ROOT / settings_table.PAGE).read_text(encoding="utf-8")

    assert [code for code in ExitCode if f"| {code.value} |" not in page] == []
