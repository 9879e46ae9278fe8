"""Traces through messages: a producer's span goes along as a property, and a consumer's span links to it.

It takes OpenTelemetry's API (the extra ``traces``), and an application that has set it up. Without it, or
outside a span, nothing is added to a message.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import Span

TRACEPARENT: Final = "traceparent"  # the property, as W3C Trace Context spells it
_API: Final = "opentelemetry.trace"


class ConsumedRecord(Protocol):
    """What is told of a record."""

    @property
    def topic(self) -> str: ...
    @property
    def unique_key(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, str]: ...


def traced(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of a message with the current span, unless they name one."""
    api: Any = sys.modules.get(_API)
    if api is None or TRACEPARENT in properties:
        return properties
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return properties
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return {**properties, TRACEPARENT: parent}


@contextmanager
def consumer_span(record: ConsumedRecord, name: str = "") -> Iterator[Span]:
    """Make a span for the work on one record; it links to the span of who produced it.

    Raises ImportError without OpenTelemetry.
    """
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {TRACEPARENT: record.properties.get(TRACEPARENT, "")}
    producer = trace.get_current_span(
        TraceContextTextMapPropagator().extract(carrier)
    ).get_span_context()
    with trace.get_tracer("penstock").start_as_current_span(
        name or f"process {record.topic}",
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(producer)] if producer.is_valid else [],
        attributes={
            "messaging.system": "rocketmq",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.message.id": record.unique_key or "",
        },
    ) as span:
        yield span
