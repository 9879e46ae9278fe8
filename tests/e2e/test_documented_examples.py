"""README.md and docs/*.md, run block after block as they stand, do what they say; names in them exist."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import run_page
import typer
from golden import golden_copy
from pages import NOT_RUN, PAGES, ROOT, blocks, inline_code
from run_page import ELSEWHERE

from cli.commands import loaded
from cli.main import app
from cli.serving import SERVICES

FOLDERS = (
    "storage",
    "services",
    "penstock",
    "pipeline",
    "cli",
    "bench",
    "deploy",
    "protos",
    "tests",
)
CHECKOUT = ("Makefile", "README.md", "deploy", "docs", "pyproject.toml")
# gRPC says nothing of connections, and a JVM that lives for a minute compiles with C1 alone.
ENVIRONMENT = {"GRPC_VERBOSITY": "NONE", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
# Of a page, what a command or a block prints, beside ending well: a part of it, and what is looked for.
PRINTED = {
    "README.md": {
        "penstock pub": r"^stored in queue 0 at offset 0",
        "penstock sub": r'\{"id": 1\}',
        "penstock query": r"order-1",
        "penstock doctor": r"nothing is wrong",
        "bills": r"^\d 0 [0-9A-F]{32}\npaid b'hello'\n$",
        "MessageStore": r"^\d+ \d+\n$",
    },
    "docs/cli.md": {
        "message --topic": r'(?s)"id": 1.*no consumer group has read its queue',
        "message 0": r"order-1",
        "--profile prod": r"orders",
        "--compare": r"ratio",
        "top --once": r"orders",
        "report": r"the disk is",
    },
    "docs/client.md": {
        "wait_ready": r"^\d 0 b'one pen'\n\('order-1',\) b'one pen'\n$",
        "asyncio.run": r"^\[\d+(, \d+){9}\]\n(\d+ \d+ b'parcel \d+'\n){10}$",
        "reminders": r"^True\n$",
        "add_many": r"^2 \d+\n$",
        "max_in_flight": r"^\d+\n$",
        "sold": r"^\[b'two pens'\]\n$",
        "transaction_checker": r"^\[\]\n$",
        "try 1": r"^\[b'EWR to IAH', b'EWR to ORD', b'EWR to IAH', b'EWR to ORD'\]\n$",
    },
    "docs/migration.md": {
        "penstock doctor": r"nothing is wrong",
        "penstock topic list": r"\blater\b",
        "penstock timers": r"since the writer's start: \d+ delivered, 0 recalled",
    },
    "docs/operations.md": {
        "penstock health": r"SERVING",
        "jq": r"^orders\t0\t0\n$",
    },
    "docs/pipeline.md": {
        "build_session": r"^1000\n$",
        "endpoint=": r"^1001\n$",
        "job audit": r"store: 2,003 records, 2,003 units, 2,006 keys; 0 findings",
        "rebuild_stores": r"^\(\)\n$",
        "job export": r"2,003 messages of 2 topics",
        "--no-body": r"1,000 messages of 1 topics",
        'format="delta"': r"^1003\n$",
        "job merge": r"merged: 2,003 messages in 4 queues",
        "job compact": r"1,005 messages in compacted",
        "job replay": r"1,003 messages in orders-again",
    },
    "docs/testing.md": {"loses_bills": r"^sync: False async: True\n$"},
}


def runs(page: str) -> bool:
    return any(block.language not in NOT_RUN for block in blocks(page))


@pytest.fixture(name="checkout")
def _checkout(tmp_path: Path) -> Path:
    """A directory that looks as a checkout does after `make setup`, and may be written to."""
    checkout = tmp_path / "penstock"
    checkout.mkdir()
    for name in CHECKOUT:
        (checkout / name).symlink_to(ROOT / name)
    (checkout / ".venv").symlink_to(sys.prefix)
    return checkout


def uses_spark(page: str) -> bool:
    return any("from pipeline import" in block.text for block in blocks(page))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.spark, pytest.mark.slow] if uses_spark(page) else [])
        for page in PAGES
        if runs(page)
    ],
)
def test_every_block_of_a_page_runs_after_those_before_it(page: str, checkout: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if uses_spark(page) and importlib.util.find_spec("pyspark") is None:
        pytest.skip("its blocks need Spark: make setup-spark")
    if "import pyarrow" in text and importlib.util.find_spec("pyarrow") is None:
        pytest.skip("its blocks need pyarrow: make setup-spark")
    if "| jq" in text and shutil.which("jq") is None:
        pytest.skip("a command of it needs jq")
    if page == "docs/migration.md":
        golden_copy("features", checkout).rename(checkout / "store")
    output = checkout.parent / "printed.json"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    runner = subprocess.Popen(
        [sys.executable, run_page.__file__, page, output],
        cwd=checkout,
        env={**os.environ, **ENVIRONMENT, "PATH": path, "XDG_CONFIG_HOME": str(checkout)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        told, _ = runner.communicate(timeout=580)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(runner.pid, signal.SIGKILL)  # its services and Java, however it ended

    assert runner.returncode == 0, told[-6000:]
    printed: list[dict[str, Any]] = json.loads(output.read_text())
    for part, wanted in PRINTED.get(page, {}).items():
        found = [each["printed"] for each in printed if part in each["what"]]
        assert found, f"{page} has nothing with {part!r} any more"
        assert re.search(wanted, found[0]), (page, part, found[0])


def test_what_is_not_run_here_has_a_target() -> None:
    """Each exception is the beginning of a line that a page has, and names the target that covers it."""
    targets = makefile_targets()
    lines = [line for page in PAGES for block in blocks(page) for line in block.text.splitlines()]
    for beginning, target in ELSEWHERE.items():
        assert any(line.startswith(beginning) for line in lines), beginning
        assert target in targets, target


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_exist(page: str) -> None:
    """`penstock ...` with its options, `make ...` and `python -m ...` between backticks."""
    wrong = []
    for code in inline_code(page):
        words = code.split()
        if words[0] == "make" and len(words) > 1 and words[1] not in makefile_targets():
            wrong.append(code)
        if words[:2] == ["python", "-m"] and importlib.util.find_spec(words[2]) is None:
            wrong.append(code)
        if words[0] == "penstock" and len(words) > 1 and (problem := unknown_part(words[1:])):
            wrong.append(f"{code}: {problem}")

    assert not wrong


@pytest.mark.parametrize("page", PAGES)
def test_files_that_the_text_names_exist(page: str) -> None:
    """A path below the root, or the end of one; and what links lead to, with their headings."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = ["/" + name for name in listed.stdout.splitlines()]
    code = inline_code(page)
    named = [each for each in code if re.fullmatch(r"[\w./-]+\.(py|proto|md)", each)]
    missing = [name for name in named if not any(path.endswith("/" + name) for path in files)]
    below = re.compile(rf"({'|'.join(FOLDERS)})/[\w./-]*")
    missing += [each for each in code if below.fullmatch(each) and not (ROOT / each).exists()]
    links = re.findall(r"\]\(([^)#:]*)(?:#([\w-]*))?\)", (ROOT / page).read_text(encoding="utf-8"))
    for link, anchor in links:
        target = (ROOT / page).parent / link if link else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(f"{link}#{anchor}")

    assert not missing


def anchors(page: Path) -> list[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@functools.cache
def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


@functools.cache
def command_line() -> Any:
    return typer.main.get_command(app)


def unknown_part(words: list[str]) -> str:
    """Return the first word that is not a command, or the first option that the command does not have."""
    command: Any = command_line()
    options = {option for each in command.params for option in each.opts}
    rest = list(words)
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        if name.startswith("-"):
            continue
        if name not in command.commands:
            return name
        is_first = command is command_line()
        command = loaded(name, "") if is_first else command.commands[name]
        if name in SERVICES:
            return ""  # its options are settings, which test_cli_surface compares with their table
    options |= {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return next((w for w in rest if w.startswith("--") and w.split("=")[0] not in options), "")
