"""Records of stages, made one by one as the format says, and what of them a log holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine_store import record, records_on_disk

from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.record import decode_record
from storage.format.stage import stage_prefix, unique_key
from storage.view.log.walk import RecordRun, walk_log


def staged(
    app: str, version: int, attempt: str, bodies: Iterable[bytes], *, first: int = 0, topic="t",
    queue_count: int = 1,
) -> bytes:  # fmt: skip
    """Encode bodies as records of a stage, numbered from ``first``; queues take turns."""
    prefix = stage_prefix(app, version, attempt)
    return b"".join(
        record(
            topic, (first + i) % queue_count, body,
            properties={"UNIQ_KEY": unique_key(prefix, first + i)},
        )
        for i, body in enumerate(bodies)
    )  # fmt: skip


def stage(staged_commits, app, version, attempt, blocks, **options):
    """Stage blocks of bodies as one attempt; return whether it was taken."""
    staging = staged_commits.stage(app, version, attempt)
    if staging is None:
        return False
    first = 0
    for bodies in blocks:
        staging.add(staged(app, version, attempt, bodies, first=first, **options))
        first += len(bodies)
    staging.seal()
    return True


def bodies_on_disk(directory: Path) -> list[bytes]:
    return [each.body for each in records_on_disk(directory)]


def intact_bodies_on_disk(directory: Path) -> list[bytes]:
    """Bodies of intact records; what an async mode lost in between is stepped over."""
    files = ReadOnlyMappedFileQueue(FileSystem(), directory / "commitlog", file_size=0)
    return [
        decode_record(step.data, int(position)).body
        for step in walk_log(files, files.first_offset, files.end_offset)
        if isinstance(step, RecordRun)
        for position in step.rows[:, 0]
    ]
