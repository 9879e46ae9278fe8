"""The words of a live sector: those that readers rely on have a check word in the same sector.

A live position has no checksum, since it moves with every append. Its check word is its product with an odd
number, which no flipped bit leaves a product of it: where the two disagree, the check word counts if it is
one, and else the position. They also disagree for a moment between the owner's two stores, of which the check
word's is the first. The words that say whose the sector is are checked by their complements. Check words of
another session are not looked at: an older version, which keeps none, has gone on with the page.
"""

from __future__ import annotations

from typing import Final

from storage.format import checkpoint as layout

DISTANCE: Final = layout.CHECK_WORD_DISTANCE // 8
FACTOR: Final = layout.CHECK_WORD_FACTOR
_BOOT_LOW: Final = 2  # words after the magic, in both sectors
_BOOT_HIGH: Final = 3
_SESSION: Final = 4


class LiveSector:
    """One live sector among the 8-byte ``words`` of a page, which begins at ``position`` bytes."""

    def __init__(self, words: memoryview, position: int, magic: int) -> None:
        self._words = words
        self._first = position // 8
        self._magic = magic

    @classmethod
    def writer(cls, words: memoryview) -> LiveSector:
        """Return the writer's sector of a page."""
        return cls(words, layout.WRITER_LIVE_POSITION, layout.WRITER_LIVE_MAGIC)

    @classmethod
    def indexer(cls, words: memoryview) -> LiveSector:
        """Return the indexer's sector of a page."""
        return cls(words, layout.INDEXER_LIVE_POSITION, layout.INDEXER_LIVE_MAGIC)

    def is_current(self, boot_low: int, boot_high: int) -> bool:
        """Whether the sector's owner has published in the boot that the two words name."""
        words, first = self._words, self._first
        boot = (boot_low, boot_high)
        if words[first] == self._magic and boot == (
            words[first + _BOOT_LOW],
            words[first + _BOOT_HIGH],
        ):
            return True
        return self.has_check_words and boot == (
            ~words[first + _BOOT_LOW + DISTANCE],
            ~words[first + _BOOT_HIGH + DISTANCE],
        )

    @property
    def has_check_words(self) -> bool:
        """Whether a session, of whichever boot, has left the sector with check words."""
        words, first = self._words, self._first
        return (
            ~words[first + DISTANCE] == self._magic
            and ~words[first + _SESSION + DISTANCE] == words[first + _SESSION]
        )

    def position_at(self, index: int) -> int:
        """Return a position of the log, whichever of its two words may have a flipped bit."""
        held, check = self._words[index], self._words[index + DISTANCE]
        if held * FACTOR == check or not self.has_check_words:
            return held
        return held if check % FACTOR else check // FACTOR
