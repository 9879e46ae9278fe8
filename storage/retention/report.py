"""What retention says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedFile:
    """One file of the log. Sizes are bytes, times Unix milliseconds, offsets commit offsets.

    ``expires_ms`` is from when on it is deleted by its age, 0: never; ``held_by`` who needs a
    record of it or of an older file, in order of name.
    """

    start_offset: int
    size_bytes: int
    modified_ms: int
    expires_ms: int
    held_by: tuple[str, ...]
    is_newest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """How retention is set (``retention_ms`` 0: off), what it has done since the writer's start, and what it will.

    ``holds`` has from which commit offset on each follower needs the log; ``problem`` says why appends
    are refused, or why files cannot be deleted. ``is_deleting``: a deletion by ``delete_expired`` took longer
    than a minute, and goes on.
    """

    retention_ms: int
    delete_hours: tuple[int, ...]
    clean_percent: int
    force_percent: int
    refuse_percent: int
    used_percent: int
    refuses_appends: bool
    problem: str
    min_commit_offset: int
    deleted_file_count: int
    deleted_bytes: int
    last_deleted_ms: int
    holds: Mapping[str, int]
    files: tuple[RetainedFile, ...]
    is_deleting: bool = False
