"""A deletion at once says whether it was done, and holds one thread however many ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock.v1 import retention_pb2
from services.writer.retention import RetentionServicer
from storage.errors import StoreBusy
from storage.retention.report import RetentionReport

REQUEST = retention_pb2.DeleteExpiredRequest(older_than_ms=0)
CONTEXT = cast("Any", None)
REPORT = RetentionReport(
    retention_ms=0, delete_hours=(4,), clean_percent=75, force_percent=85, refuse_percent=90,
    used_percent=1, refuses_appends=False, problem="", min_commit_offset=0, deleted_file_count=0,
    deleted_bytes=0, last_deleted_ms=0, holds={}, files=(),
)  # fmt: skip


class Deletion:
    """Deletes until the test lets it end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.done = True

    def report(self) -> RetentionReport:
        return REPORT

    def delete_expired(self, older_than_ms: int | None = None) -> bool:
        assert older_than_ms == 0
        assert self.may_end.wait(30)
        return self.done


@pytest.fixture
def deletion() -> Iterator[Deletion]:
    deletion = Deletion()
    yield deletion
    deletion.may_end.set()


@pytest.mark.parametrize("done", [True, False])
async def test_an_answer_says_whether_the_deletion_goes_on(deletion: Deletion, done: bool) -> None:
    deletion.may_end.set()
    deletion.done = done

    report = await RetentionServicer(deletion).delete_expired(REQUEST, CONTEXT)

    assert report.is_deleting is not done


async def test_a_second_deletion_is_refused_until_the_first_ends_also_of_a_caller_that_went(
    deletion: Deletion,
) -> None:
    servicer = RetentionServicer(deletion)
    first = asyncio.create_task(servicer.delete_expired(REQUEST, CONTEXT))
    await asyncio.sleep(0)

    with pytest.raises(StoreBusy, match="another deletion"):
        await servicer.delete_expired(REQUEST, CONTEXT)
    first.cancel()
    await asyncio.wait([first], timeout=30)
    with pytest.raises(StoreBusy, match="another deletion"):
        await servicer.delete_expired(REQUEST, CONTEXT)
    deletion.may_end.set()
    async with asyncio.timeout(30):
        while True:
            try:
                await servicer.delete_expired(REQUEST, CONTEXT)
            except StoreBusy:
                await asyncio.sleep(0.01)
            else:
                break
