"""Where the output of a command goes: a stdout of any encoding, one that is closed, one that is full."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_processes import until
from run_cli import Penstock, json_lines

from cli.failures import ExitCode
from penstock import Client, Message
from penstock.errors import InvalidArgument
from services.local_services import LocalServices

BODIES = ["plain", "caffè €", "last"]
Started = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(name="start")
def _start(services: LocalServices) -> Started:
    """Runs a command in a process of its own; ``to`` is how a shell redirects its output."""

    def start(*arguments: object, encoding: str = "utf-8", to: str = "") -> Any:
        at = [f"--{name}={address}" for name, address in services.addresses.items()]
        program = [sys.executable, "-m", "cli.main", *at, *map(str, arguments)]
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {to}', "sh", *program],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            timeout=120,
            check=False,
        )

    return start


@pytest.fixture(name="client")
def _client(services: LocalServices) -> Iterator[Client]:
    with Client(**services.addresses) as client:
        yield client


@pytest.fixture(name="spoken")
def _spoken(client: Client, topic: str) -> str:
    """A topic with a text in one queue that is not ASCII."""
    for body in BODIES:
        client.produce(topic, body.encode(), queue_id=0, keys=["clé"])
    client.wait_indexed(client.writer_status().appended_offset)
    return topic


def consumed(client: Client, group: str, topic: str) -> int:
    return sum(max(0, each.queue_offset) for each in client.offsets(group, topic))


def test_what_an_encoding_lacks_is_escaped(start: Started, client: Client, spoken: str) -> None:
    encoding = "latin-1"
    done = start("sub", spoken, "--group", "escaped", encoding=encoding)

    shown = done.stdout.decode(encoding).splitlines()
    assert (done.returncode, done.stderr) == (ExitCode.DONE, b"")
    expected = [body.encode(encoding, "backslashreplace").decode(encoding) for body in BODIES]
    assert [line.endswith(body) for line, body in zip(shown, expected, strict=True)] == [True] * 3
    assert consumed(client, "escaped", spoken) == len(BODIES)

    found = start("query", spoken, "clé", encoding=encoding)
    assert (found.returncode, found.stderr) == (ExitCode.DONE, b"")
    offset = next(client.consume(spoken, follow=False)).commit_offset
    assert start("message", offset, encoding=encoding).returncode == ExitCode.DONE


def test_json_is_json_in_any_encoding(start: Started, spoken: str) -> None:
    done = start("--json", "sub", spoken, encoding="latin-1")

    lines = done.stdout.decode("utf-8").splitlines()
    assert [json.loads(line)["body"] for line in lines] == BODIES


@pytest.mark.parametrize(
    ("to", "problem", "more"),
    [
        (">&-", "Bad file descriptor", ("--json",)),
        (">/dev/full", "No space left on device", ("--bodies",)),
    ],
)
def test_what_cannot_be_written_is_not_consumed(
    start: Started, client: Client, spoken: str, to: str, problem: str, more: tuple[str, ...]
) -> None:
    done = start("sub", spoken, "--group", "unwritten", *more, to=to)

    assert done.returncode == ExitCode.FAILED
    assert done.stderr.decode() == f"penstock: stdout: {problem}\n"
    assert consumed(client, "unwritten", spoken) == 0
    assert start("sub", spoken, "--group", "unwritten").stdout.count(b"\n") == len(BODIES)


def test_the_reader_of_a_pipe_that_has_gone_leaves_the_rest_to_the_next_run(
    start: Started, client: Client, topic: str
) -> None:
    """What the pipe has taken counts as written, and no message that it has not."""
    for body in (b"first", b"\xff" * 500_000, b"third"):  # the second is printed as 2 MB
        client.produce(topic, body, queue_id=0)

    done = start("sub", topic, "--bodies", "--group", "head", to="| head -1")
    assert (done.stdout, done.stderr) == (b"first\n", b"")
    until(lambda: consumed(client, "head", topic) == 1)
    rest = start("sub", topic, "--bodies", "--group", "head").stdout
    assert rest.endswith(b"third\n") and b"first" not in rest


@pytest.mark.parametrize(
    ("arguments", "to"),
    [(["--json", "status"], ">/dev/full"), (["--help"], ">&-")],
)
def test_a_command_whose_output_is_lost_fails_in_one_line(
    start: Started, arguments: list[str], to: str
) -> None:
    done = start(*arguments, to=to)

    assert done.returncode == ExitCode.FAILED
    assert done.stderr.startswith(b"penstock: stdout: ")
    assert done.stderr.count(b"\n") == 1


def test_with_stdout_and_stderr_closed_a_command_still_does_its_work(
    start: Started, client: Client, topic: str
) -> None:
    """No socket gets their descriptors, to which errors would be written."""
    assert start("pub", topic, "body", to=">&- 2>&-").returncode == ExitCode.FAILED
    assert [record.body for record in client.consume(topic, follow=False)] == [b"body"]


def test_a_body_that_cannot_be_unpacked_is_found_and_shown_as_it_is_stored(
    run: Penstock, client: Client, topic: str
) -> None:
    client.produce_many([Message(topic=topic, body=b"\xffnot zlib", keys=("k",), sys_flag=1)])
    client.wait_indexed(client.writer_status().appended_offset)

    found = run("query", topic, "k")
    assert (found.exit_code, "cannot be unpacked" in found.stdout) == (ExitCode.DONE, True)
    assert "cannot be unpacked" in run("sub", topic).stdout
    (line,) = json_lines(run("--json", "query", topic, "k"))
    assert base64.b64decode(line["body_base64"]) == b"\xffnot zlib"
    assert line["body_problem"].startswith("it is no zlib stream")
    assert run("message", line["message_id"]).exit_code == ExitCode.DONE
    (by_id,) = json_lines(run("--json", "message", line["commit_offset"]))
    assert by_id.items() >= line.items()

    received = client.receive(topic, group=f"of-{topic}", wait_ms=25_000)
    assert client.dead_letter(received) == []
    assert "cannot be unpacked" in run("dlq", "show", f"of-{topic}").stdout


@pytest.mark.parametrize("sys_flag", [-1, 0x2, 0x8, 0x801])
def test_a_message_says_of_its_system_flag_only_how_it_is_compressed(
    client: Client, topic: str, sys_flag: int
) -> None:
    with pytest.raises(InvalidArgument, match="sys_flag") as refused:
        client.produce_many([Message(topic=topic, body=b"x", sys_flag=sys_flag)])
    assert refused.value.field.endswith("sys_flag")
