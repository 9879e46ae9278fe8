"""Writer, reader and indexer in this process, over one real store directory, and their stubs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.v1 import (
    groups_pb2_grpc,
    indexer_pb2_grpc,
    leases_pb2_grpc,
    reader_pb2_grpc,
    writer_pb2,
    writer_pb2_grpc,
)
from services.reader import catch_up
from services.testing import RunningStore, running_store

PATIENCE_S = 30.0  # of a read for what is not visible yet, not a few seconds: machines are busy
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass
class ThreeServices:
    running: RunningStore
    writer: Any
    reader: Any
    indexer: Any
    leases: Any
    groups: Any

    @property
    def store(self) -> Path:
        return self.running.directory

    def appended_offset(self) -> int:
        status = self.writer.GetWriterStatus(writer_pb2.GetWriterStatusRequest(), timeout=10)
        return int(status.appended_offset)


def in_time(call: Callable[[float], Any]) -> Any:
    """Make a call whose answer has to come before its deadline; on a busy machine with a later one.

    The service keeps 50 ms for the way back, which is not always enough.
    """
    for timeout_s in (0.3, 0.6, 1.2, 2.5, 5.0, 10.0):
        try:
            return call(timeout_s)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, error
    raise AssertionError("no answer came before its deadline")


@contextmanager
def three_services(store: Path, **settings: Any) -> Iterator[ThreeServices]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(catch_up, "SECONDS_MAX", PATIENCE_S)
        running = stack.enter_context(running_store(store, drain_grace_seconds=2.0, **settings))
        writer, reader, indexer = (
            stack.enter_context(grpc.insecure_channel(address, OPTIONS))
            for address in (running.writer, running.reader, running.indexer)
        )
        yield ThreeServices(
            running,
            writer=writer_pb2_grpc.WriterStub(writer),
            reader=reader_pb2_grpc.ReaderStub(reader),
            indexer=indexer_pb2_grpc.IndexerStub(indexer),
            leases=leases_pb2_grpc.LeasesStub(reader),
            groups=groups_pb2_grpc.GroupsStub(reader),
        )
