"""The examples of README.md and docs/client.md, run as they stand, do what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_cli import penstock
from three_services import three_services

import penstock as package

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def example(page: str, language: str, phrase: str) -> str:
    [found] = [block for block in blocks(page, language) if phrase in block]
    return found


@pytest.fixture(name="addresses")
def _addresses(tmp_path: Path) -> Iterator[dict[str, str]]:
    with three_services(tmp_path / "served") as services:
        yield {name: service.address for name, service in services.processes.items()}


@pytest.fixture(name="run")
def _run(
    addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Any]:
    """Run a block whose default addresses are those of the services of the test."""
    client, async_client = package.Client, package.AsyncClient
    monkeypatch.setattr(package, "Client", lambda **options: client(**{**options, **addresses}))
    monkeypatch.setattr(
        package, "AsyncClient", lambda **options: async_client(**{**options, **addresses})
    )
    monkeypatch.chdir(tmp_path)

    def run(block: str, **names: Any) -> None:
        exec(compile(block, "example", "exec"), names)

    return run


def test_the_readme_s_client_finds_what_it_stored(
    run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(example("README.md", "python", "from penstock import Client"))

    stored, record = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d 0 [0-9A-F]{32}", stored)
    assert record == "paid b'hello'"


def test_the_readme_s_library_finds_what_it_stored(
    run: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    block = example("README.md", "python", "MessageStore")
    small = "config=StoreConfig(commit_log_file_size=1 << 20)"
    run(
        block.replace("from storage import ", "from storage import StoreConfig, ").replace(
            '.open("./my-store")', f'.open("./my-store", {small})'
        )
    )

    count, next_offset = map(int, capsys.readouterr().out.split())
    assert count >= 1
    assert next_offset == count
    assert (tmp_path / "my-store" / "commitlog").is_dir()


def test_the_readme_s_commands_work(addresses: dict[str, str]) -> None:
    flags = [part for name, address in addresses.items() for part in (f"--{name}", address)]
    commands = example("README.md", "sh", "topic create").splitlines()
    outputs = []
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "penstock"
        result = penstock(*flags, *arguments)
        assert result.exit_code == 0, (command, result.stderr)
        outputs.append(result.stdout)

    assert len(outputs) == 4
    assert '{"id": 1}' in outputs[2]
    assert "order-1" in outputs[3]


def test_the_client_page_s_first_example_finds_what_it_stored(
    run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(example("docs/client.md", "python", "wait_ready"))

    found = capsys.readouterr().out.splitlines()
    assert [line.endswith("b'one pen'") for line in found] == [True, True]


def test_the_client_page_s_asyncio_example_finds_what_it_stored(
    run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(example("docs/client.md", "python", "asyncio.run"))

    offsets, *found = capsys.readouterr().out.splitlines()
    assert len(offsets.split(",")) == 10
    assert len(found) == 10


def test_the_client_page_s_fragments_run(run: Callable[..., Any], addresses: Any) -> None:
    with package.Client() as client:
        for topic in ("flights", "orders"):
            client.create_topic(topic, queues=4)
        bodies = [b"1", b"2"]
        batch = example("docs/client.md", "python", "add_many")
        run(
            batch,
            client=client, RecordBatch=package.RecordBatch,
            bodies=bodies, list_of_keys=[["a"], ["b"]],
        )  # fmt: skip
        run(example("docs/client.md", "python", "max_in_flight=64"), client=client)

        assert [r.body for r in client.consume("flights", tag="EWR", follow=False)] == bodies
        assert [r.body for r in client.query_by_key("orders", "order-1")] == [b"one pen"]


def test_the_documented_staged_commit_stores_once_however_often_it_is_run(
    run: Callable[..., Any],
) -> None:
    with package.Client() as client:
        client.create_topic("flights", queues=1)
        block = example("docs/client.md", "python", "client.staged_commit")
        for _ in range(2):
            run(block, client=client, bodies=[b"one", b"two"])
        found = [record.body for record in client.consume("flights", follow=False)]
    assert found == [b"one", b"two"]
