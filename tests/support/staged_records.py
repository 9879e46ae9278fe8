"""Records of stages, made one by one as the format says, and what of them a log holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine_store import record, records_on_disk

from storage.format.stage import stage_prefix, unique_key


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
