"""Runs the blocks of one page in their order, as a reader does; called by test_documented_examples.

    python run_page.py PAGE OUTPUT.json

The working directory stands for the checkout. Blocks of Python share one namespace, and one session of
Spark with ``penstock job``. ``penstock serve`` goes into the background, on free ports and with small files:
commands find it by their variables, and the documented addresses are replaced by the real ones.
OUTPUT.json gets what each block and command printed; the exit code is not 0 when one of them failed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pages import NOT_RUN, Block, blocks

import penstock

# What a test run cannot do: each command, or line of Python, by its beginning, and the target that covers it.
ELSEWHERE = {
    "make demo": "test",  # its rows and its wiring: tests/cli/test_demo.py
    "make test": "test",
    "make setup-spark": "setup-spark",
    "pip install ": "wheel-test",
    "docker compose ": "compose-test",
    "sh bin/mq": "conformance",  # a broker and its proxy: tests/conformance/test_broker_hand_over.py
    "from rocketmq import ": "clients-test",  # tests/clients/scenarios/documented.py
    '    .load("s3://': "test-spark",  # tests/pipeline/source/test_spark_places.py: a file system in memory
}
BACKGROUND = "penstock serve"
SMALL_FILES = {
    "COMMIT_LOG_FILE_SIZE": "8MiB", "CONSUME_QUEUE_FILE_SIZE": "20000",
    "INDEX_SLOT_COUNT": "1000", "INDEX_ENTRY_COUNT": "4000",
}  # fmt: skip
SERVICES = {
    "writer": "127.0.0.1:5801", "reader": "127.0.0.1:5802", "indexer": "127.0.0.1:5803",
    "gateway": "127.0.0.1:8081", "metrics": "127.0.0.1:5804",
}  # fmt: skip
SHELL = frozenset("|<>$*;&")  # what a shell has to do with
START_SECONDS = 120
COMMAND_SECONDS = 240


class Page:
    """What the blocks before have left: names, and services with their addresses."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.addresses: dict[str, str] = {}
        self.services: list[subprocess.Popen[bytes]] = []

    def run(self, block: Block) -> list[tuple[str, str]]:
        """Return pairs of a command, or a whole block of Python, and what it printed."""
        if block.language == "python":
            if any(line.startswith(tuple(ELSEWHERE)) for line in block.text.splitlines()):
                return []
            return [(block.text, self._python(block))]
        if block.language == "json":
            return [(block.text, _parsed(block.text))]
        assert block.language == "sh", f"blocks of {block.language!r} are not run"
        return [
            (command, self._command(self._placed(command)))
            for command in block.commands()
            if not command.startswith(tuple(ELSEWHERE))
        ]

    def stop(self) -> None:
        for service in self.services:
            service.send_signal(signal.SIGTERM)
        for service in self.services:
            service.wait(60)

    def _placed(self, text: str) -> str:
        for service, address in self.addresses.items():
            text = text.replace(SERVICES[service], address)
        return text

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        text = "\n" * (block.line - 1) + self._placed(block.text)
        with contextlib.redirect_stdout(printed):
            exec(compile(text, block.page, "exec"), self.names)
        return printed.getvalue()

    def _command(self, command: str) -> str:
        if command.startswith(BACKGROUND):
            return self._serve(command)
        words = shlex.split(command, comments=True)
        if words[0] == "penstock" and not SHELL.intersection(command):
            return _penstock(words[1:])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            capture_output=True, text=True, timeout=COMMAND_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _serve(self, command: str) -> str:
        log = Path(f"serve-{len(self.services)}.log")
        free = {f"PENSTOCK_{name.upper()}_LISTEN": "127.0.0.1:0" for name in SERVICES}
        small = {f"PENSTOCK_{name}": value for name, value in SMALL_FILES.items()}
        with log.open("wb") as output:
            service = subprocess.Popen(
                shlex.split(command, comments=True),
                stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **free, **small},
            )  # fmt: skip
        self.services.append(service)
        end = time.monotonic() + START_SECONDS
        while len(found := _announced(log)) < len(SERVICES):
            assert service.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        self.addresses = found
        for name, address in found.items():
            os.environ[f"PENSTOCK_{name.upper()}"] = address
        own = {name: found[name] for name in ("writer", "reader", "indexer")}
        for name in ("Client", "AsyncClient"):  # whose defaults are the documented addresses
            setattr(penstock, name, functools.partial(getattr(penstock, name), **own))
        return log.read_text()


def _announced(log: Path) -> dict[str, str]:
    return dict(re.findall(r"penstock: (\w+) serves on (\S+)", log.read_text()))


def _penstock(arguments: list[str]) -> str:
    """Run a command in this process, a job with the session that the blocks of Python use."""
    from typer.testing import CliRunner

    from cli.main import app

    result = CliRunner().invoke(app, arguments, prog_name="penstock")
    assert result.exit_code == 0, f"{arguments}: {result.exit_code}\n{result.output}"
    return result.output


def _parsed(text: str) -> str:
    """Return a block of JSON values, one after the other, that can be read."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        _, end = decoder.raw_decode(rest)
        rest = rest[end:].lstrip()
    return text


def main(page: str, output: Path) -> None:
    """Run a page; what fails is raised with the block's place, and the blocks after it are not run."""
    printed: list[dict[str, Any]] = []
    state = Page()
    try:
        for block in blocks(page):
            if block.language not in NOT_RUN:
                print(f"{block.place}:\n{block.text}", file=sys.stderr)
                printed += [
                    {"place": block.place, "what": what, "printed": text}
                    for what, text in state.run(block)
                ]
    finally:
        state.stop()
        output.write_text(json.dumps(printed))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
