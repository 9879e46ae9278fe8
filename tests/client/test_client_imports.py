"""What importing the client costs, and that every service listens where the client looks."""

from __future__ import annotations

import ast
import compileall
import shutil
import subprocess
import sys
from pathlib import Path

import penstock
from penstock.addresses import Addresses
from services.config.settings import KINDS


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_contract_alone_does_not_load_the_client() -> None:
    loaded = loaded_by("import penstock.v1.writer_pb2")

    assert "penstock.v1.writer_pb2" in loaded
    assert not loaded & {"penstock.client", "penstock.errors", "grpc", "numpy"}


def test_the_services_do_not_load_the_client() -> None:
    loaded = loaded_by("import services.writer.__main__, services.reader.__main__")

    client = ("penstock.calls", "penstock.channel", "penstock.consuming", "penstock.client.")
    assert not {name for name in loaded if name.startswith(client)}
    assert not loaded & {"penstock.errors", "penstock.record"}


def test_every_public_name_is_found_and_nothing_else() -> None:
    """The names that type checkers see and those loaded are the same."""
    tree = ast.parse(Path(penstock.__file__).read_text(encoding="utf-8"))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        (alias.asname, node.module)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert imported == set(penstock._HOMES.items())
    assert set(penstock.__all__) <= set(dir(penstock))
    assert all(getattr(penstock, name).__name__ for name in penstock.__all__)
    assert not hasattr(penstock, "nothing_of_that_name")


def test_public_names_are_found_without_source(tmp_path: Path) -> None:
    """As in an image that holds compiled files alone."""
    package = tmp_path / "penstock"
    package.mkdir()
    shutil.copy(penstock.__file__, package)
    compileall.compile_dir(package, quiet=1, legacy=True)
    (package / "__init__.py").unlink()
    code = "import penstock; print(penstock.__file__, len(penstock.__all__))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )

    assert done.stdout.split() == [str(package / "__init__.pyc"), str(len(penstock.__all__))]


def test_a_client_without_addresses_looks_where_the_services_listen() -> None:
    with penstock.Client() as client:
        own = {
            name: KINDS[name].model_fields["listen"].default
            for name in ("writer", "reader", "indexer")
        }
        assert client.addresses == Addresses(**own)
