"""docs/architecture.md is of the code as it is: its layers, its threads, and where to look for what."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def layers() -> dict[str, str]:
    """By package the layers that import-linter verifies, as the page writes them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = {}
    for contract in contracts["contracts"]:
        [package] = contract.get("containers", [""])[:1]
        if contract["type"] == "layers" and "." not in package:
            found[package] = " > ".join(contract["layers"])
    return found


@pytest.mark.parametrize("package", layers())
def test_the_layers_of_the_page_are_those_that_are_verified(package: str) -> None:
    """After a change of a contract in pyproject.toml: write its layers into the page."""
    [block] = re.findall(r"```text\n(.*?)```", section("Import direction"), re.DOTALL)
    stated = " ".join(block.split())
    wanted = layers()[package]

    assert (f"{package}: {wanted}" if package else wanted) in stated


def test_the_table_of_changes_names_files_for_each() -> None:
    """At least 25 ordinary changes; that the files exist is tested for every page."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section("To change X, look at Y"), re.MULTILINE)
    changes = [(change, where) for change, where in rows if change not in ("To change", "---")]

    assert len(changes) >= 25
    assert len({change for change, _ in changes}) == len(changes)
    assert [change for change, where in changes if not re.search(r"`\w+/", where)] == []


def test_every_worker_is_a_thread_of_the_table() -> None:
    """By the name that it is given in the code."""
    named = re.compile(r'(?:FunctionWorker\(|super\(\)\.__init__\()\s*"(\w+)"')
    names = {
        name
        for package in ("storage", "services")
        for path in (ROOT / package).rglob("*.py")
        if "storage.workers" in (text := path.read_text(encoding="utf-8"))
        for name in named.findall(text)
    }

    assert {"flush", "dispatch", "index"} <= names
    assert [name for name in sorted(names) if f"`{name}`" not in section("Threads")] == []
