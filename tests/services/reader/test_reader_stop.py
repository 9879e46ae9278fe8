"""A reader ends within its drain time, whatever is still asked of it; what groups did is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from service_settings import reader_settings

from penstock.v1 import reader_pb2, reader_pb2_grpc
from services.reader import __main__ as reader_main
from services.testing import BackgroundService
from storage import Message, MessageStore
from storage.reader import StoreReader

QUEUES = 8


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s") as opened:
        opened.create_topic("t", QUEUES)
        opened.put_all([Message(topic="t", body=b"x", queue_id=n) for n in range(QUEUES)])
    return tmp_path / "s"


class Held:
    """Stands in for a read that goes on until the test ends."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.was_refused = threading.Event()

    def go_on(self, *_: Any, **__: Any) -> Any:
        self.has_begun.set()
        assert self.may_end.wait(120)


@pytest.fixture
def held() -> Iterator[Held]:
    call = Held()
    yield call
    call.may_end.set()


def test_it_ends_beside_a_read_that_goes_on(
    store: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreReader, "message", held.go_on)
    monkeypatch.setattr(reader_main, "_END_SECONDS", 0.05)
    service = BackgroundService(reader_main.serve, reader_settings(store, drain_grace_seconds=0.1))
    with service, grpc.insecure_channel(service.address) as channel:
        stub = reader_pb2_grpc.ReaderStub(channel)
        commit = reader_pb2.CommitOffsetRequest(group="g", topic="t", queue_id=1, queue_offset=1)
        stub.CommitOffset(commit, timeout=30)
        call = stub.GetMessage.future(reader_pb2.GetMessageRequest(commit_offset=0), timeout=120)
        assert held.has_begun.wait(30)
        service.stop()
        assert call.exception(timeout=30).code() in (
            grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE,
        )  # fmt: skip
    assert not held.may_end.is_set()  # nobody waited for it
    with StoreReader.open(store) as reader:
        assert reader.committed_offset("g", "t", 1) == 1


def test_where_a_topic_begins_is_known_after_the_end(store: Path) -> None:
    """Groups' offsets are saved then."""
    with MessageStore.open(store), StoreReader.open(store) as reader:
        reader.end()
        assert reader.incarnation_of("t") == 0
