"""How far a store may be read.

A store whose checkpoint page is ours says it itself: what its writer has confirmed is read while the
machine has not rebooted since, and what was durable after that. Of any other store, a broker's say or a
copy behind a URL, the end is where the last intact record of the log ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import UnsupportedFormat
from storage.format import checkpoint
from storage.format.checkpoint import UnknownVersion, WriterSlot

if TYPE_CHECKING:
    from collections.abc import Mapping


class Bounds(NamedTuple):
    """``[min_offset, end_offset)`` may be read; queues cover the records below ``queued_offset``."""

    min_offset: int
    end_offset: int
    queued_offset: int


class CheckpointPage:
    """The checkpoint of a store as it was read: a whole page, or less of it where no writer of ours ran.

    Making one raises UnsupportedFormat where newer code wrote a slot. ``boot_id`` is that of the machine
    which caches the files, empty if that is another one: live words count where they are of that boot.
    """

    def __init__(self, page: bytes, *, name: str, boot_id: bytes) -> None:
        self.page = page[: checkpoint.PAGE_SIZE]
        self._boot_id = boot_id
        try:
            found = checkpoint.writer_slots(self.page)
            self._indexer_slots = checkpoint.indexer_slots(self.page)
        except UnknownVersion as error:
            raise UnsupportedFormat(f"{name}: {error}; use the Penstock that wrote it") from error
        self.slots: Mapping[int, WriterSlot] = found

    @property
    def is_trusted(self) -> bool:
        """Whether our writer has spoken of the store and no broker has run since."""
        return bool(self.slots) and checkpoint.is_ours(self.page, self.slots)

    @property
    def store_id(self) -> bytes:
        """The id in the newest slot of our writer, trusted or not; empty without one."""
        return checkpoint.newest_slot(self.slots).store_id if self.slots else b""

    @property
    def live_words(self) -> dict[str, int] | None:
        """What the writer has published since the machine started; None without any."""
        if len(self.page) < checkpoint.PAGE_SIZE:
            return None
        values = checkpoint.WRITER_LIVE_LAYOUT.unpack_from(
            self.page, checkpoint.WRITER_LIVE_POSITION
        )
        words = dict(zip(checkpoint.WRITER_LIVE_WORDS, values, strict=False))
        boot_id = b"".join(
            words[name].to_bytes(8, "little", signed=True)
            for name in ("boot_id_low", "boot_id_high")
        )
        is_current = words["magic"] == checkpoint.WRITER_LIVE_MAGIC and boot_id == self._boot_id
        return words if is_current else None

    def stated_bounds(self, first_offset: int) -> Bounds | None:
        """Return what our writer says of a log from ``first_offset`` on, None if nothing is trusted."""
        if not self.is_trusted:
            return None
        live = self.live_words
        if live is not None:
            confirm = live["confirm_offset"]
            return Bounds(
                max(live["min_commit_offset"], first_offset),
                confirm,
                min(live["dispatched_offset"], confirm),
            )
        newest = checkpoint.newest_slot(self.slots)
        return Bounds(
            first_offset,
            newest.flushed_offset,
            min(newest.dispatched_offset, newest.flushed_offset),
        )

    def stated_index_end(self) -> int | None:
        """Return up to where our indexer says that every key is durably in the index.

        0 where it has said nothing of this store, None if no word of the page can be trusted. No bound
        of the log is taken into account.
        """
        if not self.is_trusted:
            return None
        if not self._indexer_slots:
            return 0
        newest = checkpoint.newest_slot(self._indexer_slots)
        return newest.indexed_offset if newest.store_id == self.store_id else 0
