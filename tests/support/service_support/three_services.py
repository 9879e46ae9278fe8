"""Writer, reader and indexer in this process, over one real store directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from service_settings import indexer_settings, reader_settings, writer_settings

from penstock.v1 import (
    groups_pb2_grpc,
    indexer_pb2_grpc,
    leases_pb2_grpc,
    reader_pb2_grpc,
    writer_pb2,
    writer_pb2_grpc,
)
from services.indexer.__main__ import serve as serve_indexer
from services.reader import catch_up
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer

PATIENCE_S = 30.0  # of a read for what is not visible yet, not a few seconds: machines are busy
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass
class ThreeServices:
    store: Path
    writer: Any
    reader: Any
    indexer: Any
    leases: Any
    groups: Any
    processes: dict[str, BackgroundService]

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
def three_services(
    store: Path, *, reader_changes: Mapping[str, Any] | None = None, **writer_changes: Any
) -> Iterator[ThreeServices]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(catch_up, "SECONDS_MAX", PATIENCE_S)
        processes: dict[str, BackgroundService] = {}
        stubs: dict[str, Any] = {}

        def start(name: str, serve: Any, settings: Any, **kinds: Any) -> str:
            process = processes[name] = BackgroundService(serve, settings)
            stack.enter_context(process)
            channel = stack.enter_context(grpc.insecure_channel(process.address, OPTIONS))
            stubs.update({stub: kind(channel) for stub, kind in kinds.items()})
            return process.address

        writer = start(
            "writer", serve_writer, writer_settings(store, **writer_changes),
            writer=writer_pb2_grpc.WriterStub,
        )  # fmt: skip
        changes = {"writer_address": writer, **(reader_changes or {})}
        start(
            "reader", serve_reader, reader_settings(store, **changes),
            reader=reader_pb2_grpc.ReaderStub, leases=leases_pb2_grpc.LeasesStub,
            groups=groups_pb2_grpc.GroupsStub,
        )  # fmt: skip
        start(
            "indexer", serve_indexer, indexer_settings(store),
            indexer=indexer_pb2_grpc.IndexerStub,
        )  # fmt: skip
        yield ThreeServices(store=store, processes=processes, **stubs)
