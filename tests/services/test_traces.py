"""Traces through real ports: spans arrive at a collector, continue the caller's trace, and link across messages."""

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from service_settings import reader_settings, writer_settings

from penstock import Client, RecordBatch
from penstock.credentials import Credentials
from penstock.tracing import TRACEPARENT, consumer_span
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer
from storage.accounts.account_table import AccountTable
from storage.accounts.rules import UserKind
from storage.files.filesystem import FileSystem

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self):
        self.spans = SimpleQueue()
        self.server = grpc.server(ThreadPoolExecutor(1))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.put(span)
        return trace_service_pb2.ExportTraceServiceResponse()

    def taken(self):
        """Return the spans so far, by their names."""
        found = {}
        while not self.spans.empty():
            span = self.spans.get()
            found[span.name] = (span, {each.key: each.value for each in span.attributes})
        return found


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.server.stop(None)


def test_calls_are_spans_of_the_callers_trace_with_what_they_do(tmp_path, collector):
    settings = writer_settings(
        tmp_path / "store", traces_endpoint=collector.address, traces_ratio=0.0
    )
    with BackgroundService(serve_writer, settings) as writer:
        with Client(writer=writer.address) as client:
            client.create_topic("orders", queues=1)
        with grpc.insecure_channel(writer.address) as channel:
            stub = writer_pb2_grpc.WriterStub(channel)
            request = writer_pb2.ProduceRequest(messages=[{"topic": "orders", "body": b"x"}])
            stub.Produce(request, metadata=[("traceparent", PARENT)])
            request.messages[0].topic = "bills"
            with pytest.raises(grpc.RpcError):
                stub.Produce(request, metadata=[("traceparent", PARENT)])
            batch = RecordBatch("orders")
            batch.add(b"x")
            stub.ProduceBatch(
                writer_pb2.ProduceBatchRequest(records=bytes(batch.records())),
                metadata=[("traceparent", PARENT)],
            )
    spans = [collector.spans.get() for _ in range(collector.spans.qsize())]
    assert [span.name for span in spans] == [
        "penstock.v1.Writer/Produce",
        "penstock.v1.Writer/Produce",
        "penstock.v1.Writer/ProduceBatch",
    ]  # CreateTopic came without a trace, of which none is begun
    stored, refused, _ = ({each.key: each.value for each in span.attributes} for span in spans)
    for span in spans:
        assert span.trace_id.hex() == PARENT.split("-")[1]
        assert span.parent_span_id.hex() == PARENT.split("-")[2]
    assert stored["messaging.destination.name"].string_value == "orders"
    assert stored["messaging.operation.type"].string_value == "send"
    assert stored["rpc.grpc.status_code"].int_value == 0
    assert refused["rpc.grpc.status_code"].int_value == grpc.StatusCode.NOT_FOUND.value[0]
    assert "bills" in spans[1].status.message


@pytest.fixture
def application():
    """An application that has set OpenTelemetry up."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_a_message_carries_its_producers_span_and_the_consumers_links_to_it(tmp_path, application):
    store = tmp_path / "store"
    with (
        BackgroundService(serve_writer, writer_settings(store)) as writer,
        BackgroundService(
            serve_reader, reader_settings(store, writer_address=writer.address)
        ) as reader,
        Client(writer=writer.address, reader=reader.address) as client,
    ):
        client.create_topic("orders", queues=1)
        tracer = trace.get_tracer("application")
        with tracer.start_as_current_span("order") as span:
            client.produce("orders", b"one call")
            with client.producer() as producer:
                producer.send("orders", b"streamed")
            client.produce("orders", b"of its own", properties={TRACEPARENT: PARENT})
        client.produce("orders", b"outside")
        records = list(client.pull("orders", 0, 0).records)
        for record in records:
            with consumer_span(record):
                pass
    producing = span.get_span_context()
    called, streamed, own, outside = application.get_finished_spans()[-4:]
    for consumed in (called, streamed):
        (link,) = consumed.links
        assert (link.context.trace_id, link.context.span_id) == (
            producing.trace_id,
            producing.span_id,
        )
    assert f"{own.links[0].context.trace_id:032x}" == PARENT.split("-")[1]
    assert not outside.links
    assert TRACEPARENT not in records[3].properties
    assert called.attributes["messaging.destination.name"] == "orders"


def test_what_nobody_is_known_by_is_not_traced(tmp_path, collector):
    table = AccountTable(FileSystem(), tmp_path / "store" / "config")
    root = table.create_user("root", UserKind.SUPER)
    settings = writer_settings(tmp_path / "store", traces_endpoint=collector.address, accounts=True)
    signed = Credentials("root", root.secrets[0]).metadata()
    with (
        BackgroundService(serve_writer, settings) as writer,
        grpc.insecure_channel(writer.address) as channel,
    ):
        stub = writer_pb2_grpc.WriterStub(channel)
        for metadata in ((), signed):
            request = writer_pb2.ListTopicsRequest() if metadata else writer_pb2.ProduceRequest()
            method = stub.ListTopics if metadata else stub.Produce
            try:
                method(request, metadata=(*metadata, ("traceparent", PARENT)))
            except grpc.RpcError as refused:
                assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
    assert list(collector.taken()) == ["penstock.v1.Writer/ListTopics"]
