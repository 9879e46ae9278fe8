"""The writer's methods for staged commits. All of them touch files, so all of them run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from penstock.v1 import staged_commits_pb2 as pb
from services import wire
from services.rpc import status
from services.rpc.servicer import Context, raw
from services.writer import batch_frames
from storage.staged.staged_commits import StagedCommits
from storage.staged.staging import StagingAttempt

_COMMITS_MAX: Final = 4  # at once; others wait for their turn
_NO_STAGE: Final = "must come first, in a message without records"
_T = TypeVar("_T")


class _Decided(Exception):
    """The commit that an attempt is for is decided: nothing of the attempt is wanted."""


class StagedCommitMethods:
    """The methods of penstock.v1.Writer that are about staged commits."""

    def __init__(self, staged: StagedCommits) -> None:
        self._staged = staged
        self._committing = ThreadPoolExecutor(_COMMITS_MAX, thread_name_prefix="penstock-commit")

    @raw
    async def stage_records(self, context: Context) -> pb.StageRecordsResponse:
        """Store the records of one attempt; durable on return, and nothing is left otherwise."""
        staging: StagingAttempt | None = None
        adding: asyncio.Future[int] | None = None

        async def take(request: bytes) -> None:
            nonlocal staging, adding
            if staging is None:
                staging = await self._begin(_stage_header(request))
                return
            if adding is not None:
                await adding
            adding = asyncio.ensure_future(
                asyncio.to_thread(staging.add, batch_frames.batch_records(request))
            )

        try:
            await context.read_each(take)
            if staging is None:
                raise status.InvalidArgument("stage", _NO_STAGE)
            if adding is not None:
                await adding
            if context.cancelled():
                raise asyncio.CancelledError  # the stream broke, which may look like its end
            seal = await asyncio.to_thread(staging.seal)
        except _Decided:
            return pb.StageRecordsResponse(decided=True)
        except BaseException:
            if adding is not None:  # its error is that of the call, or comes too late for it
                await asyncio.gather(adding, return_exceptions=True)
            if staging is not None:
                await asyncio.to_thread(staging.discard)
            raise
        return pb.StageRecordsResponse(record_count=seal.record_count, byte_count=seal.byte_count)

    async def _begin(self, header: pb.StageHeader) -> StagingAttempt:
        """Begin an attempt. Raises _Decided."""
        # To the end even when the call is cancelled: what was started must be known to be undone.
        beginning = asyncio.ensure_future(
            asyncio.to_thread(
                self._staged.stage,
                header.app_id,
                header.version,
                header.attempt,
                one_off=header.one_off,
            )
        )
        staging = await _finish(beginning, undo=_discard)
        if staging is None:
            raise _Decided
        return staging

    async def commit_staged(
        self, request: pb.CommitStagedRequest, _context: Context
    ) -> pb.CommitStagedResponse:
        """Append what the attempts hold; durable on return. It goes on when the call is cancelled."""
        staged, loop = self._staged, asyncio.get_running_loop()
        outcome, already = await loop.run_in_executor(
            self._committing,
            lambda: staged.commit(
                request.app_id,
                request.version,
                list(request.attempts),
                one_off=request.one_off,
            ),
        )
        answer = pb.CommitStagedResponse(already_committed=already)
        if outcome is not None:
            answer.committed.CopyFrom(_committed(outcome))
        return answer

    async def abort_staged(
        self, request: pb.AbortStagedRequest, _context: Context
    ) -> pb.AbortStagedResponse:
        """Remove staged attempts."""
        if request.all and request.attempts:
            raise status.InvalidArgument("attempts", "must be empty when all are to be removed")
        removed_count = await asyncio.to_thread(
            self._staged.abort,
            request.app_id,
            request.version,
            None if request.all else list(request.attempts),
        )
        return pb.AbortStagedResponse(removed_count=removed_count)

    async def list_staged_commits(
        self, _request: pb.ListStagedCommitsRequest, _context: Context
    ) -> pb.ListStagedCommitsResponse:
        """Return what every application has committed and what of it is open."""
        applications = await asyncio.to_thread(self._staged.status)
        return pb.ListStagedCommitsResponse(applications=map(_application, applications))


def _stage_header(request: bytes) -> pb.StageHeader:
    first = pb.StageRecordsRequest.FromString(request)
    if not first.HasField("stage") or first.records:
        raise status.InvalidArgument("stage", _NO_STAGE)
    return first.stage


async def _finish(started: asyncio.Future[_T], *, undo: Callable[[_T], None]) -> _T:
    """Wait for something started in a thread; a call that is cancelled meanwhile undoes it."""
    try:
        return await asyncio.shield(started)
    except asyncio.CancelledError:

        def undo_it(done: asyncio.Future[_T]) -> None:
            if not done.cancelled() and done.exception() is None:
                undo(done.result())

        started.add_done_callback(undo_it)
        raise


def _discard(staging: StagingAttempt | None) -> None:
    if staging is not None:
        asyncio.get_running_loop().run_in_executor(None, staging.discard)


def _committed(outcome: Any) -> pb.CommitOutcome:
    return wire.message_from(pb.CommitOutcome, outcome)


def _application(app: Any) -> pb.StagedApplication:
    return wire.message_from(
        pb.StagedApplication,
        app,
        last=None if app.last is None else _committed(app.last),
        open=[
            wire.message_from(
                pb.OpenStagedCommit,
                each,
                stages=[
                    wire.message_from(
                        pb.StagedAttempt,
                        stage.seal,
                        attempt=stage.header.attempt,
                        created_ms=stage.header.created_ms,
                    )
                    for stage in each.stages
                ],
            )
            for each in app.open
        ],
    )
