"""How far a store may be read.

A store whose checkpoint page is ours says it itself: what its writer has confirmed is read while the
machine has not rebooted since, and what was durable after that. Of any other store, one that a broker
ran on last or a copy behind a URL, the end is where the last intact record of the log ends.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from storage.errors import UnsupportedFormat
from storage.format import checkpoint
from storage.format.checkpoint import BrokerFields, WriterSlot


class Bounds(NamedTuple):
    """``[min_offset, end_offset)`` may be read; queues cover the records below ``queued_offset``."""

    min_offset: int
    end_offset: int
    queued_offset: int


def stated_bounds(durable: WriterSlot, live: Bounds | None, first_offset: int = 0) -> Bounds | None:
    """Return what a page says of a log from ``first_offset`` on, None if nothing is trusted.

    ``live`` is what a writer has published since the machine started, None without any. A broker that
    ran since makes it as stale as the durable slots: it writes bytes 0 to 39 of the page and nothing else.
    """
    if not durable.trusted:
        return None
    said = live or Bounds(first_offset, durable.flushed_offset, durable.dispatched_offset)
    return Bounds(
        max(said.min_offset, first_offset),
        said.end_offset,
        min(said.queued_offset, said.end_offset),
    )


class CheckpointPage:
    """The checkpoint of a store as it was read: a whole page, or less of it where no writer of ours ran.

    Making one raises UnsupportedFormat where newer code wrote a slot. ``boot_id`` is that of the machine
    which caches the files, empty if that is another one: live words count where they are of that boot.
    """

    def __init__(self, page: bytes, *, name: str, boot_id: bytes) -> None:
        self.page = page[: checkpoint.PAGE_SIZE]
        self._boot_id = boot_id
        try:
            self.durable = checkpoint.newest_writer_slot(self.page)
            self.durable_index = checkpoint.newest_indexer_slot(self.page)
        except UnsupportedFormat as error:
            raise UnsupportedFormat(f"{name}: {error}; use the Penstock that wrote it") from error

    @property
    def broker_fields(self) -> BrokerFields:
        """Bytes 0 to 39; those of a shorter page read as zeros."""
        return BrokerFields.decode(self.page)

    @property
    def live_words(self) -> dict[str, int] | None:
        """What the writer has published since the machine started; None without any."""
        if len(self.page) < checkpoint.PAGE_SIZE:
            return None
        values = checkpoint.WRITER_LIVE_LAYOUT.unpack_from(
            self.page, checkpoint.WRITER_LIVE_POSITION
        )
        words = dict(zip(checkpoint.WRITER_LIVE_WORDS, values, strict=False))
        boot = struct.pack("=qq", words["boot_id_low"], words["boot_id_high"])
        if words["magic"] != checkpoint.WRITER_LIVE_MAGIC or boot != self._boot_id:
            return None
        return words

    def stated_bounds(self, first_offset: int) -> Bounds | None:
        """Return what our writer says of a log from ``first_offset`` on, None if nothing is trusted."""
        words = self.live_words
        live = None
        if words is not None:
            live = Bounds(
                words["min_commit_offset"], words["confirm_offset"], words["dispatched_offset"]
            )
        return stated_bounds(self.durable, live, first_offset)
