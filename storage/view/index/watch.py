"""Whether a reader sees the whole index, which others write and somebody may delete files of.

A file that was there and is not is either lost, or was dropped by an indexer that makes the index
again from some offset on. Both are over when an indexer has begun a new session and has come as far
as the index had been: until then queries would miss what they found before, so they are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import IndexIncomplete
from storage.format.names import INDEX_NAME_LENGTH

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile


class IndexState(NamedTuple):
    """What an indexer has published."""

    session: int
    indexed_offset: int


class IndexWatch:
    """Remembers what a reader has seen of the index. One thread at a time."""

    def __init__(self) -> None:
        self._known: frozenset[int] = frozenset()
        self._session = 0
        self._lost = 0  # number of a file that went in this session, 0 if none did
        self._highest = 0  # the highest indexed offset that was seen

    def note(
        self, before: IndexState | None, files: Collection[int], lost: Collection[int]
    ) -> None:
        """Take note of the ``files`` that were listed after ``before`` was published.

        ``lost`` are those that no indexer has dropped.
        """
        gone = self._known - frozenset(files)
        self._known = frozenset(files)
        if before is None:
            return
        if before.session != self._session:
            self._session, self._lost = before.session, 0
            gone &= frozenset(lost)
        if gone and not self._lost:
            self._lost = min(gone)
        self._highest = max(self._highest, before.indexed_offset)

    def check(self, positions: CheckpointFile | None, before: IndexState | None) -> bool:
        """Whether what was listed after ``before`` was the whole index; False: look again.

        Raises IndexIncomplete while files are gone, or being made again.
        """
        now = published(positions)
        if positions is None or before is None or now is None:
            return True
        if self._lost and now.session == self._session:
            raise IndexIncomplete(
                f"index file {self._lost:0{INDEX_NAME_LENGTH}d} is gone; queries by key are answered"
                " again when the indexer has made it again"
            )
        # A log that has lost its end takes the index back with it.
        self._highest = min(self._highest, positions.confirm_offset)
        if now.indexed_offset < self._highest:
            raise IndexIncomplete(
                f"the index is being made again, and is at {now.indexed_offset} of {self._highest}"
            )
        return now.session == before.session


def published(positions: CheckpointFile | None) -> IndexState | None:
    """Return what an indexer has published; None where none of ours did since the machine started."""
    if positions is None or not positions.indexer_is_current:
        return None
    session = positions.indexer_session  # first: an indexer that begins again publishes it last
    return IndexState(session, positions.indexed_offset)


def indexed_at_rest(positions: CheckpointFile) -> int:
    """Return up to where our indexer has indexed durably; 0 where it has not, in this store."""
    slot = positions.durable.load_index()
    is_ours = slot.present and slot.store_id == positions.durable.load().store_id
    return slot.indexed_offset if is_ours else 0
