"""Logs as events with fields, configured once a process: JSON lines, or columns on a terminal.

Everything goes to stderr. Modules of ``storage`` use the standard library's logging; their lines
are rendered the same way. A request id is generated where a caller sent none.
"""

from __future__ import annotations

import logging
import secrets
import sys
from typing import Any, Final

import structlog

REQUEST_ID_KEY: Final = "x-request-id"
AUDIT_LOGGER: Final = "penstock.audit"
FIRST_FIELDS: Final = ("time", "level", "event", "service")
_REQUEST_ID_LENGTH_MAX: Final = 128


def configure(*, service: str, level: str, log_format: str) -> None:
    """Send this process's events to stderr; ``log_format`` is auto, json or console."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _trace_ids,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info if as_json else _keep,
        _service_adder(service),
    ]
    renderers: list[Any] = (
        [_in_order, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)  # whatever the level of all others is
    set_level(level)


def set_level(level: str) -> None:
    """Log events from a level on; of libraries warnings at least."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for noisy in ("asyncio", "grpc", "numba"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def get_logger() -> Any:
    """Return the logger of events; call it with an event name and fields."""
    return structlog.stdlib.get_logger("services")


def request_id(metadata: Any) -> str:
    """Return the caller's request id if it sent a sensible one, else a fresh one."""
    for key, value in metadata or ():
        if key == REQUEST_ID_KEY and isinstance(value, str) and value.isprintable():
            return value[:_REQUEST_ID_LENGTH_MAX]
    return secrets.token_hex(8)


def _service_adder(service: str) -> Any:
    def add(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        event["service"] = service
        return event

    return add


def _trace_ids(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Add the ids of the span that is under way, where there are traces."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is not None and (context := api.get_current_span().get_span_context()).is_valid:
        event["trace_id"] = f"{context.trace_id:032x}"
        event["span_id"] = f"{context.span_id:016x}"
    return event


def _in_order(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in FIRST_FIELDS if name in event} | event


def _keep(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    return event
