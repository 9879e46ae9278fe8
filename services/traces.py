"""Traces: a span of each call, exported by OpenTelemetry where an endpoint is set (the extra ``traces``).

A span continues the caller's trace, which the metadata ``traceparent`` names (W3C Trace Context), and has
OpenTelemetry's attributes of RPCs and of messaging. Events that a call logs carry its ids
(``services.logs``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc

from services.accounts.rights import RIGHTS, named
from services.config.settings import ProcessSettings
from services.rpc.calls import InBandRefusal, InterceptedCall, Interceptor, Proceed
from services.rpc.status import code_of, store_error
from storage.accounts.rules import TOPIC
from storage.errors import StoreError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

_CARRIED: Final = ("traceparent", "tracestate")
_OPERATIONS: Final = {  # of messaging, by method; others are calls only
    "Produce": "send", "ProduceBatch": "send", "SendMessage": "send", "Prepare": "send",
    "Pull": "receive", "PullStream": "receive", "Receive": "receive", "ReceiveMessage": "receive",
    "Acknowledge": "settle", "AckMessage": "settle", "DeadLetter": "settle",
}  # fmt: skip


class MissingTraces(ValueError):
    """OpenTelemetry is not installed, and an endpoint is set."""


@contextmanager
def open_traces(service: str, settings: ProcessSettings) -> Iterator[Sequence[Interceptor]]:
    """Give the interceptor that settings ask for, none if they ask for none; send at the end what is left.

    Raises MissingTraces.
    """
    if not settings.traces_endpoint:
        yield ()
        return
    provider = _provider(service, settings)
    try:
        yield (Traces(provider),)
    finally:
        provider.shutdown()


class Traces:
    """An interceptor that makes spans; the innermost one: what accounts or limits refuse is not traced."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("penstock")
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, call: InterceptedCall, proceed: Proceed) -> Any:
        """Make a call within a span. Raises what the call raises."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        method = call.method
        carrier = {
            key: value for key, value in call.context.invocation_metadata() if key in _CARRIED
        }
        with self._tracer.start_as_current_span(
            f"{method.service}/{method.name}",
            self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={
                "rpc.system": "grpc",
                "rpc.service": method.service,
                "rpc.method": method.name,
                "client.address": call.context.peer(),
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if span.is_recording():
                await _describe(span, call)
            code = grpc.StatusCode.OK
            try:
                return await proceed(call)
            except InBandRefusal:
                raise
            except Exception as error:
                known = store_error(error)
                is_known = isinstance(known, StoreError)
                code = code_of(known) if isinstance(known, StoreError) else grpc.StatusCode.INTERNAL
                span.set_status(Status(StatusCode.ERROR, str(known) if is_known else ""))
                raise
            finally:
                span.set_attribute("rpc.grpc.status_code", code.value[0])


def _provider(service: str, settings: ProcessSettings) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise MissingTraces(
            f"--traces-endpoint needs OpenTelemetry: install penstock with its extra traces ({error})"
        ) from error
    provider = TracerProvider(
        resource=Resource.create({"service.name": f"penstock-{service}"}),
        sampler=ParentBased(TraceIdRatioBased(settings.traces_ratio)),
    )
    endpoint = settings.traces_endpoint
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


async def _describe(span: Span, call: InterceptedCall) -> None:
    """Say what a call does to which topic, where its request names one."""
    operation = _OPERATIONS.get(call.method.name)
    if operation is None:
        return
    span.set_attribute("messaging.system", "rocketmq")
    span.set_attribute("messaging.operation.type", operation)
    names = RIGHTS[call.method.service, call.method.name].names
    request = await call.request() if names else None
    if request is None:
        return
    topics = {
        resource.name
        for each in names
        for resource in named(request, each)
        if resource.kind == TOPIC
    }
    if len(topics) == 1:
        span.set_attribute("messaging.destination.name", topics.pop())
