"""The methods of penstock.v1.Retention: what old files are deleted when, and their deletion at once."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.v1 import retention_pb2
from services.loops import shielded
from services.rpc.servicer import Context
from storage.errors import StoreBusy
from storage.retention.report import RetainedFile, RetentionReport
from storage.retention.worker import RetentionWorker

BUSY_RETRY_MS: Final = 1_000


class RetentionServicer:
    """Looks at the disk and at every file of the log, so in threads."""

    def __init__(self, retention: RetentionWorker) -> None:
        self._retention = retention
        self._deleting: asyncio.Future[bool] | None = (
            None  # holds a thread, also of a caller that went
        )

    async def get_retention(
        self, _request: retention_pb2.GetRetentionRequest, _context: Context
    ) -> retention_pb2.RetentionReport:
        """Return what retention has deleted, what it will, and what holds it."""
        return _message(await asyncio.to_thread(self._retention.report))

    async def delete_expired(
        self, request: retention_pb2.DeleteExpiredRequest, context: Context
    ) -> retention_pb2.RetentionReport:
        """Delete files that are older than asked for, and return what is left and whether it goes on.

        Raises InvalidMessage, and StoreBusy while another call waits for its deletion.
        """
        if self._deleting is not None and not self._deleting.done():
            raise StoreBusy("another deletion is under way", retry_delay_ms=BUSY_RETRY_MS)
        age_ms = request.older_than_ms if request.HasField("older_than_ms") else None
        self._deleting = asyncio.ensure_future(
            asyncio.to_thread(self._retention.delete_expired, age_ms)
        )
        done = await shielded(self._deleting)
        report = await self.get_retention(retention_pb2.GetRetentionRequest(), context)
        report.is_deleting = not done
        return report


def _message(report: RetentionReport) -> retention_pb2.RetentionReport:
    return retention_pb2.RetentionReport(
        retention_ms=report.retention_ms,
        delete_hours=report.delete_hours,
        clean_percent=report.clean_percent,
        force_percent=report.force_percent,
        refuse_percent=report.refuse_percent,
        used_percent=report.used_percent,
        refuses_appends=report.refuses_appends,
        problem=report.problem,
        min_commit_offset=report.min_commit_offset,
        deleted_file_count=report.deleted_file_count,
        deleted_bytes=report.deleted_bytes,
        last_deleted_ms=report.last_deleted_ms,
        holds=report.holds,
        files=map(_file, report.files),
    )


def _file(file: RetainedFile) -> retention_pb2.RetainedFile:
    return retention_pb2.RetainedFile(
        start_offset=file.start_offset,
        size_bytes=file.size_bytes,
        modified_ms=file.modified_ms,
        expires_ms=file.expires_ms,
        held_by=file.held_by,
        is_newest=file.is_newest,
    )
