"""The methods of penstock.v1.DeadLetters: the reader asks for copies of what its groups gave up."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.v1 import dead_letters_pb2
from services.rpc.servicer import Context
from services.rpc.status import InvalidArgument
from services.writer.acks import Acks
from storage.writer import StoreWriter

RECORDS_MAX: Final = 4_096  # of a request


class DeadLetterServicer:
    """Appends in a thread: the records are read from files that may have left the page cache."""

    def __init__(self, store: StoreWriter, acks: Acks) -> None:
        self._store = store
        self._acks = acks

    async def append_dead_letters(
        self, request: dead_letters_pb2.AppendDeadLettersRequest, _context: Context
    ) -> dead_letters_pb2.AppendDeadLettersResponse:
        """Append copies; the answer follows once they are as durable as the flush mode says."""
        if len(request.commit_offsets) > RECORDS_MAX:
            raise InvalidArgument(
                "commit_offsets", f"are too many; send at most {RECORDS_MAX} in one request"
            )
        appended = await asyncio.to_thread(
            self._store.append_dead_letters,
            request.group,
            list(request.commit_offsets),
            list(request.reconsume_times),
        )
        if appended.record_count and not self._acks.has(appended.end_commit_offset):
            await self._acks.wait(appended.end_commit_offset)
        return dead_letters_pb2.AppendDeadLettersResponse(
            record_count=appended.record_count,
            uncopied=[
                dead_letters_pb2.UncopiedRecord(index=index, reason=reason)
                for index, reason in appended.uncopied
            ],
        )
