"""What of the log no index file has the keys of, though the indexer has come further.

A file that was removed with its checksums leaves nothing that names it: the files beside it, and how far
the index is said to go, show a range without a file, and the log shows whether a key is in there. Where
every record has a key such a range is empty. A long one is looked through a little at a time, each part of
it once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.kernels.columns import CHECK_COMMIT_OFFSET
from storage.message import UncoveredRange
from storage.view.index.keys import KeyHasher
from storage.view.log.parts import record_runs

if TYPE_CHECKING:
    from storage.view.index.reader import IndexListing
    from storage.view.log.commit_log import CommitLogView

REASON: Final = "no index file has them; the indexer makes it again when it starts"
LOOK_BYTES: Final = 4 << 20  # of the log in one look
FRESH_S: Final = (
    0.1  # in which a look holds while the same files are there: each is a step for each file
)

Span = tuple[int, int]  # commit offsets of the records of a file's first and last key


class _Hole(NamedTuple):
    """Where a file may be missing: after the record ``last``, -1 without one, and before ``following``."""

    last: int
    following: int
    end: int  # of what may lack keys: the record at ``following`` may have some in the missing file


@dataclass(slots=True)
class _Looked:
    """How far the log was looked through from a record on, and the first record with a key, -1 before one was met."""

    position: int
    key_at: int = -1

    def is_done(self, log: CommitLogView, end: int) -> bool:
        """Whether no more need be looked at before ``end``."""
        return self.position >= end or self.key_at >= log.min_offset


class IndexGaps:
    """Remembers what was looked through. One thread at a time."""

    def __init__(self) -> None:
        self._looked: dict[int, _Looked] = {}  # by the record before
        self._spans: dict[
            int, Span | None
        ] = {}  # of all files but the newest, which alone is put to
        self._hasher = KeyHasher()
        self._listing: IndexListing | None = None  # of the last look
        self._ends = (0, 0, 0)
        self._gaps: dict[int, UncoveredRange] = {}
        self._is_done = False
        self._fresh_until_s = 0.0

    def look(
        self, log: CommitLogView, listing: IndexListing, indexed_offset: int
    ) -> Mapping[int, UncoveredRange]:
        """Return the ranges that no file covers, by numbers that stand where the missing files stood.

        What is listed was so after everything before ``indexed_offset`` had been indexed.
        """
        files = listing.files
        newest = max(files, default=0)
        ends = (indexed_offset, files[newest].last_commit_offset if files else -1, log.min_offset)
        now_s = time.monotonic()
        if listing is self._listing and log.min_offset == self._ends[2]:
            # Where there were gaps, they grow with what is indexed.
            is_fresh = now_s < self._fresh_until_s and not self._gaps
            if is_fresh or (self._is_done and ends == self._ends):
                return self._gaps
        spans: dict[int, Span | None] = {}
        for number, file in files.items():
            is_known = number in self._spans
            spans[number] = self._spans[number] if is_known else file.spanned
        self._spans = {number: span for number, span in spans.items() if number != newest}
        holes = _holes(spans, listing.lost, indexed_offset)
        budget = LOOK_BYTES
        for hole in holes.values():
            budget -= self._look_into(log, hole, budget)
        lasts = {hole.last for hole in holes.values()}
        self._looked = {last: each for last, each in self._looked.items() if last in lasts}
        looked = {number: self._looked[hole.last] for number, hole in holes.items()}
        self._is_done = all(looked[n].is_done(log, hole.following) for n, hole in holes.items())
        self._listing, self._ends = listing, ends
        self._fresh_until_s = now_s + FRESH_S if budget > 0 else now_s
        self._gaps = {
            number: UncoveredRange(
                begin_commit_offset=max(hole.last, log.min_offset), end_commit_offset=hole.end,
                file_name="", reason=REASON,
            )
            for number, hole in holes.items()
            if log.min_offset <= looked[number].key_at < hole.following
        }  # fmt: skip
        return self._gaps

    def _look_into(self, log: CommitLogView, hole: _Hole, budget: int) -> int:
        """Look for a record with a key in a hole; return how many bytes of the log that took."""
        looked = self._looked.get(hole.last)
        if looked is None:
            # From the record itself on: it may not be shown yet, so that nothing says where it ends.
            looked = self._looked[hole.last] = _Looked(max(hole.last, 0))
        if looked.is_done(log, hole.following) or budget <= 0:
            return 0
        begin = looked.position = max(looked.position, log.min_offset)
        # Checksums are not looked at, as the indexer does not.
        for run in record_runs(
            log, begin, hole.following, checks=CHECK_COMMIT_OFFSET, run_bytes=LOOK_BYTES
        ):
            if looked.position - begin >= budget:
                return looked.position - begin
            for _, offsets, _ in self._hasher.of(run):
                between = offsets[offsets > hole.last]
                if len(between):
                    looked.key_at = int(between[0])
                    return run.end_offset - begin
            looked.position = run.end_offset
        looked.position = max(looked.position, min(hole.following, log.end_offset))
        return looked.position - begin


def _holes(
    spans: Mapping[int, Span | None], lost: Mapping[int, UncoveredRange], indexed_offset: int
) -> dict[int, _Hole]:
    """Return where files may be missing, by a number that each of them could have had."""
    covered = {number: span for number, span in spans.items() if span is not None}
    for number, each in lost.items():
        covered[number] = each.begin_commit_offset, each.end_commit_offset - 1
    holes: dict[int, _Hole] = {}
    last = -1
    for number, (begin, end) in sorted(covered.items()):
        if number - 1 not in covered:
            holes[number - 1] = _Hole(last, begin, begin + 1)
        last = max(last, end)
    newest = max([*spans, *lost], default=0)
    holes[newest + 1] = _Hole(last, indexed_offset, indexed_offset)
    return holes
