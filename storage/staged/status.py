"""What ``StagedCommits.status`` returns."""

from __future__ import annotations

from dataclasses import dataclass

from storage.staged.ledger import Outcome
from storage.staged.open_commit import OpenCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """One staged attempt."""

    attempt: str
    record_count: int
    byte_count: int
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCommitState:
    """One staged commit under way; ``problem`` says why a decided one is not."""

    version: int
    decided: bool
    problem: str
    stages: tuple[StageState, ...]

    @classmethod
    def of(cls, commit: OpenCommit) -> OpenCommitState:
        """Return the state of a commit."""
        return cls(
            version=commit.version,
            decided=commit.intent is not None,
            problem=commit.problem,
            stages=tuple(
                StageState(
                    attempt=attempt,
                    record_count=stage.seal.record_count,
                    byte_count=stage.seal.byte_count,
                    created_ms=stage.header.created_ms,
                )
                for attempt, stage in sorted(commit.stages.items())
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
    """One application: its highest committed version (-1: none) and its open staged commits.

    ``problem`` says why it is refused, empty if it is not; ``app_id`` is then its directory's name.
    """

    app_id: str
    last_version: int
    last: Outcome | None
    open: tuple[OpenCommitState, ...]
    problem: str = ""
