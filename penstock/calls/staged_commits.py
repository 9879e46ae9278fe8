"""Calls about staged commits, and the frames that stage one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.operation import operation
from penstock.framing import framed_batch
from penstock.requests import build, value_of
from penstock.v1 import staged_commits_pb2 as pb
from penstock.values import Committed, OpenStagedCommit, Staged, StagedApplication
from storage.format.stage import stage_prefix, unique_key


class Version:
    """One version of one application, and what is sent and answered of it."""

    def __init__(self, app_id: str, version: int, *, one_off: bool) -> None:
        self.app_id = app_id
        self.version = version
        self.one_off = one_off

    def unique_key(self, attempt: str, number: int) -> str:
        """Return the unique key that record ``number`` (from 0) of an attempt must have."""
        return unique_key(stage_prefix(self.app_id, self.version, attempt), number)

    def stage_frames(
        self, attempt: str, batches: Iterable[bytes | bytearray | memoryview]
    ) -> Iterator[bytes]:
        """Yield the requests that stage an attempt."""
        header = build(
            pb.StageHeader,
            app_id=self.app_id,
            version=self.version,
            attempt=attempt,
            one_off=self.one_off,
        )
        yield pb.StageRecordsRequest(stage=header).SerializeToString()
        for records in batches:
            yield framed_batch([records], len(records))

    def commit_call(self, attempts: Sequence[str], timeout_s: float) -> Call[Committed]:
        """Ask for the attempts to be stored."""
        request = build(
            pb.CommitStagedRequest,
            app_id=self.app_id,
            version=self.version,
            attempts=list(attempts),
            one_off=self.one_off,
        )
        return Call(wire.COMMIT_STAGED, request, self._committed, timeout_s=timeout_s)

    def abort_call(self, attempts: Sequence[str] | None, timeout_s: float | None) -> Call[int]:
        """Ask for attempts to be removed, all with None."""
        request = build(
            pb.AbortStagedRequest,
            app_id=self.app_id,
            version=self.version,
            attempts=list(attempts or ()),
            all=attempts is None,
        )
        return Call(
            wire.ABORT_STAGED,
            request,
            lambda answer: int(answer.removed_count),
            timeout_s=timeout_s,
        )

    def _committed(self, answer: pb.CommitStagedResponse) -> Committed:
        if not answer.HasField("committed"):
            return Committed(
                version=self.version, commit_offset=-1, end_commit_offset=-1, record_count=-1,
                committed_ms=-1, already=answer.already_committed,
            )  # fmt: skip
        return _committed(answer.committed, already=answer.already_committed)


def staged(attempt: str, answer: pb.StageRecordsResponse) -> Staged:
    """Return the writer's answer about an attempt that it staged."""
    return value_of(Staged, answer, attempt=attempt)


class StagedCommitOperations:
    """The staged commits of all applications."""

    @operation
    def staged_commits(self, *, timeout_s: float | None = None) -> Call[list[StagedApplication]]:
        """Return each application's commits, and its staged commits that are open."""
        return Call(
            wire.LIST_STAGED_COMMITS,
            pb.ListStagedCommitsRequest(),
            lambda answer: list(map(_application, answer.applications)),
            timeout_s=timeout_s,
        )


def _committed(message: pb.CommitOutcome, *, already: bool = False) -> Committed:
    return value_of(Committed, message, already=already)


def _application(message: pb.StagedApplication) -> StagedApplication:
    return value_of(
        StagedApplication,
        message,
        last=_committed(message.last) if message.HasField("last") else None,
        open=tuple(
            value_of(
                OpenStagedCommit,
                each,
                stages=tuple(value_of(Staged, stage, decided=False) for stage in each.stages),
            )
            for each in message.open
        ),
    )
