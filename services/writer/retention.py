"""The methods of penstock.v1.Retention: what old files are deleted when, and their deletion at once."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.v1 import retention_pb2
from services import wire
from services.loops import shielded
from services.rpc.servicer import Context
from storage.errors import StoreBusy
from storage.retention.report import RetentionReport
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
    files = [wire.message_from(retention_pb2.RetainedFile, file) for file in report.files]
    return wire.message_from(retention_pb2.RetentionReport, report, files=files)
