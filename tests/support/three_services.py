"""Writer, reader and indexer in this process, over one real store directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from background_loop import BackgroundService
from service_settings import indexer_settings, reader_settings, writer_settings

from penstock.v1 import indexer_pb2_grpc, reader_pb2_grpc, writer_pb2, writer_pb2_grpc
from services.indexer.__main__ import serve as serve_indexer
from services.reader.__main__ import serve as serve_reader
from services.writer.__main__ import serve as serve_writer

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass
class ThreeServices:
    store: Path
    writer: Any
    reader: Any
    indexer: Any
    processes: dict[str, BackgroundService]

    def appended_offset(self) -> int:
        status = self.writer.GetWriterStatus(writer_pb2.GetWriterStatusRequest(), timeout=10)
        return int(status.appended_offset)


@contextmanager
def three_services(store: Path, **writer_changes: Any) -> Iterator[ThreeServices]:
    with ExitStack() as stack:
        processes = {
            "writer": BackgroundService(serve_writer, writer_settings(store, **writer_changes)),
            "reader": BackgroundService(serve_reader, reader_settings(store)),
            "indexer": BackgroundService(serve_indexer, indexer_settings(store)),
        }
        stubs = {}
        for name, kind in (
            ("writer", writer_pb2_grpc.WriterStub),
            ("reader", reader_pb2_grpc.ReaderStub),
            ("indexer", indexer_pb2_grpc.IndexerStub),
        ):
            stack.enter_context(processes[name])
            channel = grpc.insecure_channel(processes[name].address, OPTIONS)
            stubs[name] = kind(stack.enter_context(channel))
        yield ThreeServices(store=store, processes=processes, **stubs)
