"""Calls about retention."""

from __future__ import annotations

from penstock import wire
from penstock.calls.call import Call
from penstock.requests import build
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
    return RetentionReport(
        retention_ms=answer.retention_ms,
        delete_hours=tuple(answer.delete_hours),
        clean_percent=answer.clean_percent,
        force_percent=answer.force_percent,
        refuse_percent=answer.refuse_percent,
        used_percent=answer.used_percent,
        refuses_appends=answer.refuses_appends,
        problem=answer.problem,
        min_commit_offset=answer.min_commit_offset,
        deleted_file_count=answer.deleted_file_count,
        deleted_bytes=answer.deleted_bytes,
        last_deleted_ms=answer.last_deleted_ms,
        holds=dict(answer.holds),
        files=tuple(
            RetainedFile(
                start_offset=file.start_offset,
                size_bytes=file.size_bytes,
                modified_ms=file.modified_ms,
                expires_ms=file.expires_ms,
                held_by=tuple(file.held_by),
                is_newest=file.is_newest,
            )
            for file in answer.files
        ),
        is_deleting=answer.is_deleting,
    )
