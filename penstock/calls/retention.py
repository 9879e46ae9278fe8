"""Calls about retention."""

from __future__ import annotations

from penstock import wire
from penstock.calls.call import Call
from penstock.requests import build, value_of
from penstock.v1 import retention_pb2
from penstock.values import RetainedFile, RetentionReport


def report() -> Call[RetentionReport]:
    """Ask what is deleted when, and what holds it."""
    return Call(wire.GET_RETENTION, retention_pb2.GetRetentionRequest(), _report)


def delete_expired(older_than_ms: int | None) -> Call[RetentionReport]:
    """Delete the files that are older than that; doing so twice deletes no more."""
    request = build(retention_pb2.DeleteExpiredRequest, older_than_ms=older_than_ms)
    return Call(wire.DELETE_EXPIRED, request, _report)


def _report(answer: retention_pb2.RetentionReport) -> RetentionReport:
    files = tuple(value_of(RetainedFile, file) for file in answer.files)
    return value_of(RetentionReport, answer, files=files)
