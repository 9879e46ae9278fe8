"""Which records of the timer topic are pending, by time: rows of eight bytes in sorted blocks.

A row is ``(due time - base_ms) << 32 | (queue offset - base_offset)``; each block has bases of its own, and
is never changed: what is taken from its begin is counted in ``head``. Small blocks are merged as they get
more, so that there are few, each row is written to few of them, and 10 million rows take 80 MB.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Packed = npt.NDArray[np.uint64]

SPAN: Final = (1 << 32) - 1
"""What a row's halves hold. A due time that is further from the base is looked at again when it comes to that.

Queue offsets further apart are in blocks of their own.
"""
BLOCK_ROWS_MAX: Final = 1 << 20  # blocks this long are not merged any more
MERGED_RATIO: Final = 2  # a block less than so many times as long as the next one is merged with it


class TimerBlock:
    """Rows in order of time. ``file`` names the file that holds them, empty before they were saved."""

    __slots__ = ("base_ms", "base_offset", "file", "head", "rows")

    def __init__(
        self, rows: Packed, base_ms: int, base_offset: int, *, head: int = 0, file: str = ""
    ) -> None:
        self.rows = rows
        self.base_ms = base_ms
        self.base_offset = base_offset
        self.head = head
        self.file = file

    @classmethod
    def of(cls, dues_ms: Longs, queue_offsets: Longs) -> TimerBlock:
        """Return a block of rows in any order; there is at least one, and all queue offsets are within ``SPAN``."""
        base_ms, base_offset = int(dues_ms.min()), int(queue_offsets.min())
        rows = np.minimum(dues_ms - base_ms, SPAN).astype(np.uint64)
        rows <<= np.uint64(32)
        rows |= (queue_offsets - base_offset).astype(np.uint64)
        rows.sort(kind="stable")
        return cls(rows, base_ms, base_offset)

    def __len__(self) -> int:
        return len(self.rows) - self.head

    @property
    def last_offset(self) -> int:
        """The highest queue offset of its rows; there is one."""
        return self.base_offset + int((self.rows[self.head :] & np.uint64(SPAN)).max())

    def due_end(self, now_ms: int) -> int:
        """Return the index after the last row that is due."""
        if now_ms < self.base_ms:
            return self.head
        until = min(now_ms - self.base_ms, SPAN) << 32 | SPAN
        return max(int(np.searchsorted(self.rows, np.uint64(until), side="right")), self.head)

    def dues_ms(self, begin: int, end: int) -> Longs:
        """Return when rows are due."""
        return self.base_ms + (self.rows[begin:end] >> np.uint64(32)).astype(np.int64)

    def queue_offsets(self, begin: int, end: int) -> Longs:
        """Return the queue offsets of rows."""
        return self.base_offset + (self.rows[begin:end] & np.uint64(SPAN)).astype(np.int64)


class Due(NamedTuple):
    """Rows that are due, by time; and how many of each block they are."""

    dues_ms: Longs
    queue_offsets: Longs
    taken: tuple[tuple[TimerBlock, int], ...]


class PendingTimers:
    """The pending rows of a store; used by one thread."""

    def __init__(self) -> None:
        self.blocks: list[TimerBlock] = []

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def add(self, dues_ms: Longs, queue_offsets: Longs) -> None:
        """Add rows in any order."""
        if not len(dues_ms):
            return
        is_low = queue_offsets - queue_offsets.min() <= SPAN
        if not is_low.all():
            self.add(dues_ms[~is_low], queue_offsets[~is_low])
            dues_ms, queue_offsets = dues_ms[is_low], queue_offsets[is_low]
        block = TimerBlock.of(dues_ms, queue_offsets)
        while self.blocks:
            last = self.blocks[-1]
            if len(last) >= min(MERGED_RATIO * len(block), BLOCK_ROWS_MAX):
                break
            first = min(last.base_offset, block.base_offset)
            if max(last.last_offset, block.last_offset) - first > SPAN:
                break
            block = _merged(self.blocks.pop(), block)
        self.blocks.append(block)

    def next_due_ms(self) -> int | None:
        """Return when the first row is due, None without rows; from any thread."""
        heads = [(block, block.head) for block in self.blocks]
        return min(
            (int(each.dues_ms(head, head + 1)[0]) for each, head in heads if head < len(each.rows)),
            default=None,
        )

    def first_queue_offset(self) -> int | None:
        """Return a queue offset that no pending row is before, None without rows."""
        return min((block.base_offset for block in self.blocks), default=None)

    def due(self, now_ms: int, count_max: int) -> Due:
        """Return up to ``count_max`` rows that are due, the first by time; they stay until ``take``."""
        found = []
        for block in self.blocks:
            end = min(block.due_end(now_ms), block.head + count_max)
            if end > block.head:
                found.append((block, block.head, end))
        if not found:
            none = np.empty(0, np.int64)
            return Due(none, none, ())
        if len(found) == 1:
            block, begin, end = found[0]
            taken = ((block, end - begin),)
            return Due(block.dues_ms(begin, end), block.queue_offsets(begin, end), taken)
        dues_ms = np.concatenate([block.dues_ms(begin, end) for block, begin, end in found])
        offsets = np.concatenate([block.queue_offsets(begin, end) for block, begin, end in found])
        of_block = np.repeat(np.arange(len(found)), [end - begin for _, begin, end in found])
        if len(dues_ms) > count_max:  # to sort all of them would take as long as to deliver them
            last_ms = np.partition(dues_ms, count_max - 1)[count_max - 1]
            first = dues_ms <= last_ms
            dues_ms, offsets, of_block = dues_ms[first], offsets[first], of_block[first]
        order = np.lexsort((offsets, dues_ms))[:count_max]
        counts = np.bincount(of_block[order], minlength=len(found)).tolist()
        return Due(
            dues_ms[order], offsets[order],
            tuple((block, count) for (block, _, _), count in zip(found, counts, strict=True)),
        )  # fmt: skip

    def take(self, due: Due) -> None:
        """Remove rows that ``due`` returned; nothing was added or taken since."""
        for block, count in due.taken:
            block.head += count
        self.blocks = [block for block in self.blocks if len(block)]

    def counts(self, edges_ms: Longs) -> Longs:
        """Return how many rows are due before each of the ascending times."""
        total = np.zeros(len(edges_ms), np.int64)
        for block in self.blocks:
            before = [block.due_end(int(edge) - 1) - block.head for edge in edges_ms]
            total += np.array(before, np.int64)
        return total


def without(blocks: Iterable[TimerBlock], queue_offsets: Longs) -> list[TimerBlock]:
    """Return blocks without the rows of some queue offsets."""
    left = []
    for block in blocks:
        offsets = block.queue_offsets(block.head, len(block.rows))
        kept = ~np.isin(offsets, queue_offsets)
        if kept.all():
            left.append(block)
        elif kept.any():
            dues_ms = block.dues_ms(block.head, len(block.rows))
            left.append(TimerBlock.of(dues_ms[kept], offsets[kept]))
    return left


def _merged(first: TimerBlock, second: TimerBlock) -> TimerBlock:
    parts = [(block, block.head, len(block.rows)) for block in (first, second)]
    return TimerBlock.of(
        np.concatenate([block.dues_ms(begin, end) for block, begin, end in parts]),
        np.concatenate([block.queue_offsets(begin, end) for block, begin, end in parts]),
    )
