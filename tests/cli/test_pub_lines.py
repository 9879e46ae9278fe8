"""`pub --lines` when not all goes well: which lines are stored, which are not, and how to go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from faulty_penstock import FaultyPenstock, rich_status
from hypothesis import given
from hypothesis import strategies as st
from run_cli import json_lines, penstock
from typer.testing import Result

from cli.failures import CommandFailed, ExitCode
from cli.line_ranges import LineRanges
from cli.pub_lines import Outgoing, send_lines
from cli.session import Session

BODIES = [b"%d" % n * 600_000 for n in range(1, 6)]  # two do not fit into one batch
READ_ONLY = rich_status(grpc.StatusCode.FAILED_PRECONDITION, "a sync failed")
FORGOTTEN = rich_status(grpc.StatusCode.ABORTED, "not known any more")


def pub(faulty: FaultyPenstock, *arguments: str) -> Result:
    addresses = [f"--{name}={address}" for name, address in faulty.addresses.items()]
    lines = ("pub", "orders", "--queue", "0", "--lines", "-")
    return penstock(*addresses, *lines, *arguments, stdin=b"\n".join(BODIES))


def test_a_connection_that_breaks_costs_nothing(faulty: FaultyPenstock) -> None:
    """Lines are stored, and the answer is lost: each line is there once."""
    faulty.answers_lost["ProduceBatch"] = 2
    result = pub(faulty, "--json")

    assert result.exit_code == ExitCode.DONE, result.stderr
    assert json_lines(result)[0]["stored"] == 5
    assert faulty.bodies("orders", 0) == BODIES


@pytest.mark.parametrize("option", ["--lines", "--json-lines"])
def test_lines_of_a_closed_stdin_are_refused(faulty: FaultyPenstock, option: str) -> None:
    writer = f"--writer={faulty.addresses['writer']}"
    program = [sys.executable, "-m", "cli.main", writer, "pub", "orders", option, "-"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *program], capture_output=True, text=True, check=False
    )

    assert done.returncode == ExitCode.USAGE
    assert done.stderr == "penstock: stdin is closed: nothing can be read from -\n"


def test_lines_of_which_nobody_knows_are_named(faulty: FaultyPenstock) -> None:
    """The writer forgot what became of line 2: it alone is in doubt."""
    faulty.faults["ProduceBatch"].extend([None, FORGOTTEN])
    broken = pub(faulty, "--json")

    assert broken.exit_code == ExitCode.UNREACHABLE
    assert len(broken.stderr.splitlines()) == 1
    assert "line 2: " in broken.stderr
    assert "1 stored or not: --only 2" in broken.stderr
    told = json_lines(broken)[0]
    assert (told["first_not_acknowledged"], told["unknown_lines"]) == (2, "2")


def test_what_is_certainly_not_stored_can_be_sent_again(faulty: FaultyPenstock) -> None:
    """After a refusal the lines it names are those missing: sent again each is there once."""
    faulty.faults["ProduceBatch"].extend([None, READ_ONLY])
    refused = pub(faulty, "--json")
    told = json_lines(refused)[0]

    assert refused.exit_code == ExitCode.REFUSED
    assert told["first_not_acknowledged"] == 2
    assert f"send again: --only {told['not_stored_lines']}\n" in refused.stderr
    assert told["unknown_lines"] == ""
    assert len(faulty.bodies("orders", 0)) == told["stored"] < len(BODIES)
    again = pub(faulty, "--only", told["not_stored_lines"])
    assert again.exit_code == ExitCode.DONE, again.stderr
    assert sorted(faulty.bodies("orders", 0)) == BODIES


def test_an_interrupted_run_says_how_to_go_on(faulty: FaultyPenstock) -> None:
    """Ctrl-C: what was sent has its outcome, and the rest is named by its first line."""

    def lines() -> Iterator[tuple[int, Outgoing]]:
        yield 1, Outgoing(b"a", queue_id=0)
        yield 2, Outgoing(b"b", queue_id=0)
        raise KeyboardInterrupt

    session = Session(**faulty.addresses)
    with session.client() as client, pytest.raises(CommandFailed) as stopped:
        send_lines(session, client, "orders", lines())

    assert stopped.value.code == ExitCode.INTERRUPTED
    assert str(stopped.value) == (
        "interrupted; 2 lines sent, 2 stored; not stored, send again: --only 3-"
    )
    assert faulty.bodies("orders", 0) == [b"a", b"b"]


@given(st.sets(st.integers(1, 60)))
def test_lines_named_as_ranges_are_those_lines(numbers: set[int]) -> None:
    """Written, read back and looked for they are the same; `after` cuts."""
    ranges = LineRanges.of(numbers)

    if numbers:
        assert LineRanges.parse(str(ranges)) == ranges
    assert {number for number in range(70) if number in ranges} == numbers
    after = ranges.after(30)
    assert after == LineRanges.of(n for n in numbers if n > 30)
    assert LineRanges.joined((*after.ranges, *ranges.ranges, (20, 21))) == LineRanges.of(
        {*numbers, 20, 21}
    )


@pytest.mark.parametrize("text", ["x", "0", "5-3", "1,,2", "-5", "１"])
def test_what_is_not_a_list_of_lines_is_refused(text: str) -> None:
    result = penstock("pub", "orders", "--lines", "-", f"--only={text}", stdin="a")

    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("penstock: --only: ")
