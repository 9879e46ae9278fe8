"""Starting a service: alone, before the writer, and where it cannot: one line and an exit code."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from real_processes import SMALL_STORE, one_service, until
from steps_to_try import cases_to_try

from penstock.v1 import common_pb2, reader_pb2, reader_pb2_grpc, writer_pb2, writer_pb2_grpc


def ends(*arguments: str, **options: object) -> tuple[int, str]:
    """Run a service that must not start; return its exit code and its one line."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    return int(done.returncode), lines[0]


def as_any_user() -> None:
    """In a child before its program starts: give up root's right to read what it has no permission for."""
    drop_from_bounding_set, dac_override, dac_read_search = (
        24,
        1,
        2,
    )  # of linux/prctl.h, capability.h
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (dac_override, dac_read_search):
        if libc.prctl(drop_from_bounding_set, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


def test_a_locked_store_is_refused_in_one_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with one_service("writer", store, *SMALL_STORE) as first:
        first.wait_serving("writer")
        code, line = ends("services.writer", "--store", str(store), "--listen", "127.0.0.1:0")
        assert code == 3
        assert line.startswith("penstock writer: ") and str(store) in line


@pytest.mark.parametrize("service", cases_to_try(["writer", "reader", "indexer"]))
def test_a_directory_that_is_not_a_store_is_refused_in_one_line(
    tmp_path: Path, service: str
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    code, line = ends(f"services.{service}", "--store", str(tmp_path))
    assert code == 4
    assert line.startswith(f"penstock {service}: ") and str(tmp_path) in line
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_unreadable_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    tmp_path.chmod(0)
    try:
        code, line = ends(
            "services.reader", "--store", str(tmp_path),
            preexec_fn=as_any_user if os.geteuid() == 0 else None,
        )  # fmt: skip
    finally:
        tmp_path.chmod(0o700)
    assert (code, str(tmp_path) in line) == (4, True)


def test_a_newer_format_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "penstock.json").write_text('{"formatVersion": 99, "storeId": ""}')
    code, line = ends("services.writer", "--store", str(tmp_path))
    assert (code, "99" in line) == (5, True)


def test_a_taken_address_is_refused_in_one_line(tmp_path: Path) -> None:
    with one_service("writer", tmp_path / "one", *SMALL_STORE) as first:
        address, _ = first.wait_serving("writer")
        code, line = ends(
            "services.writer", "--store", str(tmp_path / "two"), "--listen", address, *SMALL_STORE
        )
        assert (code, address in line) == (6, True)
        assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    "taken", cases_to_try(["writer", "gateway", "metrics", "reader", "indexer"], 3)
)
def test_serve_on_a_taken_address_makes_no_store(tmp_path: Path, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        free = [
            part
            for name in ("writer", "reader", "indexer", "gateway", "metrics")
            for part in (f"--{name}-listen", address if name == taken else "127.0.0.1:0")
        ]
        code, line = ends("services.supervisor", "--store", str(tmp_path / "store"), *free)
    assert (code, address in line) == (6, True)
    assert f"--{taken}-listen chooses another" in line
    assert not (tmp_path / "store").exists()


def test_a_reader_that_waits_in_vain_says_so(tmp_path: Path) -> None:
    code, line = ends(
        "services.reader", "--store", str(tmp_path / "none"), "--store-wait-seconds", "0.1"
    )
    assert (code, "no writer" in line) == (4, True)


def test_a_bad_setting_is_named(tmp_path: Path) -> None:
    flags = ["--consume-queue-file-size", "1001"]
    code, line = ends("services.writer", "--store", str(tmp_path / "store"), *flags)
    assert (code, "consume_queue_file_size" in line) == (2, True), line


def test_readers_may_start_before_the_writer_and_outlive_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        one_service("reader", store) as reader,
        one_service("indexer", store) as indexer,
        one_service("writer", store, *SMALL_STORE) as writer,
    ):
        writer_address, _ = writer.wait_serving("writer")
        reader_address, _ = reader.wait_serving("reader")
        indexer.wait_serving("indexer")
        with grpc.insecure_channel(writer_address) as channel:
            stub = writer_pb2_grpc.WriterStub(channel)
            stub.CreateTopic(writer_pb2.CreateTopicRequest(name="t", queue_count=1), timeout=20)
            message = common_pb2.Message(topic="t", body=b"x")
            stub.Produce(writer_pb2.ProduceRequest(messages=[message]), timeout=20)
        with grpc.insecure_channel(reader_address) as channel:
            stub = reader_pb2_grpc.ReaderStub(channel)
            pull = reader_pb2.PullRequest(topic="t", wait_ms=5000, decode=True)
            assert [r.body for r in stub.Pull(pull, timeout=20).decoded] == [b"x"]
            writer.process.kill()
            writer.process.wait(10)
            assert [r.body for r in stub.Pull(pull, timeout=20).decoded] == [b"x"]
            status = reader_pb2.GetReaderStatusRequest()
            until(lambda: not stub.GetReaderStatus(status, timeout=10).writer_alive)
        assert reader.stop() == 0
        assert indexer.stop() == 0
