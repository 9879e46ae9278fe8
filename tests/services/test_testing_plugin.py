"""The plugin that applications test with, as an application's tests use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pages import blocks

APPLICATION = """
import grpc
import pytest

from penstock.v1 import indexer_pb2, indexer_pb2_grpc, writer_pb2, writer_pb2_grpc


@pytest.fixture(scope="module")
def grpc_stub_cls():
    return {stub}


def test_a_call_of_the_contract(grpc_stub):
    grpc_stub.{method}({module}.{method}Request(), timeout=30)


def test_each_test_has_a_topic_of_its_own(penstock, penstock_topic):
    assert penstock.produce(penstock_topic, b"1").queue_offset == 0


@pytest.mark.parametrize("number", ["1/2", "1:2"])
def test_each_case_too(penstock, penstock_topic, number):
    assert penstock.produce(penstock_topic, b"1").queue_offset == 0
"""
WRITER = {
    "stub": "writer_pb2_grpc.WriterStub",
    "method": "GetWriterStatus",
    "module": "writer_pb2",
}
INDEXER = {
    "stub": "indexer_pb2_grpc.IndexerStub",
    "method": "GetIndexerStatus",
    "module": "indexer_pb2",
}


def outcome(directory: Path, settings: str, **modules: str) -> str:
    """Run pytest over an application's tests; return its last line."""
    (directory / "conftest.py").write_text('pytest_plugins = ["services.testing"]\n')
    (directory / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(pytest_run, cwd=directory, capture_output=True, text=True, check=False)
    return ended.stdout.strip().splitlines()[-1]


def test_an_applications_tests_run_on_a_store_of_processes(tmp_path: Path) -> None:
    modules = {"test_writer": WRITER, "test_indexer": INDEXER}
    ended = outcome(
        tmp_path,
        "penstock_processes = true",
        **{name: APPLICATION.format(**names) for name, names in modules.items()},
    )
    assert ended.startswith("8 passed in")


def test_the_manuals_test_passes(tmp_path: Path) -> None:
    """A handler that fails, a retry, and a dead letter; the services are threads."""
    example = next(each for each in blocks("docs/testing.md") if "pytest_plugins" in each.text)
    test = example.text.partition("\n")[2]
    assert outcome(tmp_path, "", test_application=test).startswith("1 passed in")
