"""Which positions of a checkpoint page hold: those that move, the durable ones, or none.

A broker that runs on the directory writes its own fields and nothing else. The live positions of our last
writer are as stale then as its durable slots, though the machine has not rebooted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile
    from storage.format.checkpoint import WriterSlot


class Trust(NamedTuple):
    """What holds of a page for as long as its ``head`` stays as it is.

    ``is_live``: the writer's live positions hold. ``session`` is the writer's then, -1 while only
    ``durable`` holds, and 0 where nothing does.
    """

    head: bytes
    durable: WriterSlot
    is_live: bool
    session: int


def trust_in(positions: CheckpointFile) -> Trust:
    """Return what of the page holds now. Raises UnsupportedFormat where newer code has written it."""
    while True:  # until all parts are of one moment
        head = positions.head
        durable = positions.durable.load()
        is_live = durable.trusted and positions.writer_is_current
        session = positions.writer_session if is_live else -int(durable.trusted)
        if positions.head == head:
            return Trust(head, durable, is_live, session)


def kept_from(positions: CheckpointFile, end_offset: int) -> int | None:
    """Return from which commit offset on our last writer kept the log; None where that is not sure.

    Retention publishes it before a file goes. So it holds in the boot of that writer, and after an orderly stop,
    which syncs the page; after a power cut the page may be older than the directory. It is an old copy where the
    log goes on to ``end_offset`` after what it says.
    """
    trust = trust_in(positions)
    durable = trust.durable
    if not durable.trusted or not (trust.is_live or durable.clean):
        return None
    stated_end = durable.flushed_offset if durable.clean else positions.appended_offset
    return positions.last_min_commit_offset if end_offset <= stated_end else None
