"""Batches have a connection of their own: it is renewed when the writer is silent, and nothing else ends by that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import pytest
from frame_outcomes import answer_with
from free_ports import free_port

from penstock.v1 import writer_pb2
from services.gateway import transactions
from services.gateway.sends import batch_stream
from services.gateway.sends.batch_stream import BatchStream, NotNow, Unanswered
from services.gateway.transactions import OrphanedTransactions
from services.upstream import ServiceAddress, Upstream
from storage.message import ProducerSequence

SEQUENCE: Final = ProducerSequence(1, 1, 0)


class FakeWriter:
    """Reads batches and answers them, or not; notes the connections of batches and of watches."""

    def __init__(self) -> None:
        self.is_silent = self.ends_streams = False
        self.producers: list[str] = []
        self.watchers: list[str] = []
        self.ended_watches = 0
        self._server = grpc.aio.server()
        watch = grpc.unary_stream_rpc_method_handler(self._watch)
        produce = grpc.stream_stream_rpc_method_handler(self._produce)
        for service, methods in (
            ("penstock.v1.Transactions", {"WatchChecks": watch}),
            ("penstock.v1.Writer", {"ProduceStream": produce}),
        ):
            handlers = grpc.method_handlers_generic_handler(service, methods)
            self._server.add_generic_rpc_handlers((handlers,))

    async def start(self, address: str) -> int:
        """Return the port."""
        port = self._server.add_insecure_port(address)
        await self._server.start()
        return port

    async def stop(self) -> None:
        await self._server.stop(None)

    async def _watch(self, _request: bytes, context: Any) -> AsyncIterator[bytes]:
        self.watchers.append(context.peer())
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            self.ended_watches += 1

    async def _produce(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.producers.append(context.peer())
        async for _ in requests:
            if self.ends_streams:
                return
            if not self.is_silent:
                stored = writer_pb2.ProduceBatchResponse()
                yield answer_with(stored=stored).SerializeToString()


class Published:
    """Telemetry of producers of one topic."""

    def published_topics(self) -> frozenset[str]:
        return frozenset({"orders"})


async def until(count: list[str], least: int) -> None:
    async with asyncio.timeout(20):
        while len(count) < least:
            await asyncio.sleep(0.005)


async def test_a_renewed_connection_for_batches_ends_no_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_stream, "SILENT_SECONDS", 0.3)
    writer, nothing = FakeWriter(), Published()
    address = f"127.0.0.1:{await writer.start('127.0.0.1:0')}"
    upstream, batches = Upstream(ServiceAddress(address)), BatchStream(ServiceAddress(address))
    telemetry: Any = nothing
    orphaned = OrphanedTransactions(upstream, telemetry)
    orphaned.tick()
    await until(writer.watchers, 1)
    writer.is_silent = True
    with pytest.raises(Unanswered):
        await batches.store([b"record"], SEQUENCE)
    writer.is_silent = False
    await batches.store([b"record"], SEQUENCE)

    first, second = writer.producers
    assert first != second
    assert (len(writer.watchers), writer.ended_watches) == (1, 0)
    assert not {first, second} & {*writer.watchers}
    await orphaned.close()
    await batches.close()
    await upstream.close()
    await writer.stop()


async def test_what_was_written_to_no_connection_is_not_stored_and_goes_out_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_stream, "SILENT_SECONDS", 0.2)
    address = f"127.0.0.1:{free_port()}"
    batches, writer = BatchStream(ServiceAddress(address)), FakeWriter()
    for _ in range(2):
        with pytest.raises(NotNow):
            await batches.store([b"record"], SEQUENCE)
    await writer.start(address)
    monkeypatch.setattr(batch_stream, "SILENT_SECONDS", 20)
    await batches.store([b"record"], SEQUENCE)

    assert len(writer.producers) == 1  # by the call that waited for the connection
    await batches.close()
    await writer.stop()


async def test_a_batch_whose_stream_ends_may_be_stored_and_the_next_one_opens_another() -> None:
    writer = FakeWriter()
    batches = BatchStream(ServiceAddress(f"127.0.0.1:{await writer.start('127.0.0.1:0')}"))
    await batches.store([b"record"], SEQUENCE)
    writer.ends_streams = True
    with pytest.raises(Unanswered):
        await batches.store([b"record"], SEQUENCE)
    writer.ends_streams = False
    await batches.store([b"record"], SEQUENCE)

    assert len(writer.producers) == 2
    await batches.close()
    await writer.stop()


async def test_a_watch_goes_on_over_a_renewed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_WATCH_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("services.upstream.CALL_SECONDS", 0.01)
    writer = FakeWriter()
    upstream = Upstream(ServiceAddress(f"127.0.0.1:{await writer.start('127.0.0.1:0')}"))
    telemetry: Any = Published()
    orphaned = OrphanedTransactions(upstream, telemetry)
    orphaned.tick()
    await until(writer.watchers, 1)
    upstream.renew()
    await until(writer.watchers, 2)

    assert len({*writer.watchers}) == 2
    await orphaned.close()
    await upstream.close()
    await writer.stop()
