"""Queries by key: candidates from the index files, proof from the records.

An index file knows hashes only, so every candidate's topic, key and store time are compared in the
record itself. Pages go from the newest message to the oldest; within a page records stand by
ascending commit offset, as a broker sends them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from storage.errors import InvalidMessage
from storage.kernels.lookup import KEY_ABSENT, match_keys
from storage.kernels.unit_record import DAMAGED, GOOD
from storage.message import Damage, KeyQueryResult, UncoveredRange
from storage.view.index.key_index import IndexCursor, IndexFiles, KeyIndex
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.records import damage_reason, join_pieces

PAGE_MAX: Final = 64
PAGE_BYTES_MAX: Final = 8 << 20  # of records in one page, however few that are
CANDIDATES: Final = 128  # taken from the index at a time
FOREVER: Final = (1 << 63) - 1


class _Token(NamedTuple):
    """Where the next page goes on: from a place in the index, below a commit offset."""

    cursor: IndexCursor | None
    below: int

    @classmethod
    def parse(cls, text: str) -> _Token:
        if not text:
            return cls(None, FOREVER)
        try:
            number, entry, below = (int(part, 36) for part in text.split("."))
            if not 0 <= min(number, entry, below) <= max(number, entry, below) <= FOREVER:
                raise ValueError
        except ValueError:
            raise InvalidMessage("page_token", f"{text!r} is none that was given out") from None
        return cls(IndexCursor(number, entry) if number else None, below)

    def __str__(self) -> str:
        number, entry = self.cursor or (0, 0)
        return ".".join(np.base_repr(part, 36).lower() for part in (number, entry, self.below))


class _Match(NamedTuple):
    commit_offset: int
    size: int
    cursor: IndexCursor | None  # where the candidates that it was among begin


class _KeyQuestion:
    """What makes a record an answer."""

    def __init__(
        self,
        log: CommitLogView,
        topic: str,
        since_offset: int,
        key: str,
        unique: bool,
        begin_ms: int,
        end_ms: int,
    ) -> None:
        self.topic = topic
        self.since_offset = (
            since_offset  # the topic's incarnation: what is before is another topic's
        )
        self.key = key
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self._log = log
        self._topic_bytes = np.frombuffer(topic.encode(), np.uint8)
        self._key_bytes = np.frombuffer(key.encode(), np.uint8)
        self._unique = unique

    def judge(self, offsets: list[int]) -> list[tuple[int, int, int]]:
        """Return commit offset, state and record size of each candidate."""
        candidates = np.array(offsets, np.int64)
        states = np.full(len(offsets), KEY_ABSENT, np.int64)
        sizes = np.zeros(len(offsets), np.int64)
        searched: set[int] = set()
        for offset in offsets:
            span = self._log.find(offset)
            if span is not None and span.start_offset not in searched:
                searched.add(span.start_offset)
                match_keys(
                    span.array, span.start_offset, span.end_offset, candidates,
                    self._topic_bytes, self._key_bytes, self._unique, self.begin_ms, self.end_ms,
                    states, sizes,
                )  # fmt: skip
        return list(zip(offsets, states.tolist(), sizes.tolist(), strict=True))

    def lost_range(self, offset: int) -> UncoveredRange | None:
        """Return the part of the log that is gone from a candidate's commit offset on; None if it is there."""
        log = self._log
        if not log.min_offset <= offset < log.stated_end or log.find(offset) is not None:
            return None
        following = log.next_start(offset)
        return UncoveredRange(
            begin_commit_offset=offset,
            end_commit_offset=log.stated_end if following is None else following,
            file_name="",
            reason="its part of the commit log is gone",
        )


def query_by_key(
    log: CommitLogView,
    index: KeyIndex,
    *,
    topic: str,
    since_offset: int,
    key: str,
    unique: bool,
    begin_timestamp_ms: int,
    end_timestamp_ms: int | None,
    max_messages: int,
    page_token: str,
    indexed_offset: Callable[[], int],
) -> KeyQueryResult:
    """Return one page of the messages that carry a key; see ``StoreReader.query_by_key``."""
    if not key:
        raise InvalidMessage("key", "is empty")
    if not unique and " " in key:
        raise InvalidMessage("key", "contains a space; ask for one key at a time")
    count_max = min(max(max_messages, 1), PAGE_MAX)
    cursor, below = _Token.parse(page_token)
    begin_ms = _in_int64(begin_timestamp_ms)
    end_ms = FOREVER if end_timestamp_ms is None else _in_int64(end_timestamp_ms)
    question = _KeyQuestion(log, topic, since_offset, key, unique, begin_ms, end_ms)
    indexed_before = indexed_offset()
    found, damaged, uncovered = _find(index.look(), question, count_max, cursor, below)
    page = _that_fit(found[:count_max])
    token = _Token(page[-1].cursor, page[-1].commit_offset) if len(found) > len(page) else None
    # It goes back when an indexer starts, which then changes the newest file.
    indexed = min(indexed_before, indexed_offset())
    return _answer(log, page, damaged, uncovered, str(token or ""), indexed)


def _find(
    files: IndexFiles,
    question: _KeyQuestion,
    count_max: int,
    cursor: IndexCursor | None,
    below: int,
) -> tuple[list[_Match], tuple[Damage, ...], list[UncoveredRange]]:
    """Return the next matches below a commit offset, more than ``count_max`` if there are more."""
    found: list[_Match] = []
    damaged: dict[int, Damage] = {}
    uncovered: list[UncoveredRange] = []
    while len(found) <= count_max:
        offsets, following, missing = files.find(
            question.topic, question.key, count_max=CANDIDATES,
            begin_ms=question.begin_ms, end_ms=question.end_ms, cursor=cursor,
        )  # fmt: skip
        uncovered += missing
        for offset, state, size in question.judge(offsets):
            # Candidates come newest first, so one that is not below the last is a repeated one.
            if not question.since_offset <= offset < below:
                continue
            if state == GOOD:
                below = offset
                found.append(_Match(offset, size, cursor))
            elif state == KEY_ABSENT and (lost := question.lost_range(offset)) is not None:
                if lost not in uncovered:
                    uncovered.append(lost)
            elif state >= DAMAGED:
                damaged[offset] = Damage(
                    queue_offset=-1, commit_offset=offset, size=size, reason=damage_reason(state)
                )
        if following is None:
            break
        cursor = following
    return found, tuple(damaged.values()), uncovered


def _that_fit(found: list[_Match]) -> list[_Match]:
    """Return the first matches, as many as a page of `PAGE_BYTES_MAX` holds; one always."""
    total = 0
    for count, match in enumerate(found):
        total += match.size
        if count and total > PAGE_BYTES_MAX:
            return found[:count]
    return found


def _in_int64(number: int) -> int:
    return min(max(number, -FOREVER), FOREVER)


def _answer(
    log: CommitLogView,
    page: list[_Match],
    damaged: tuple[Damage, ...],
    uncovered: list[UncoveredRange],
    next_page_token: str,
    indexed_offset: int,
) -> KeyQueryResult:
    pieces = []
    byte_count = 0
    for match in sorted(page):
        span = log.find(match.commit_offset)
        if span is not None:
            position = match.commit_offset - span.start_offset
            pieces.append((span.array, np.array([[position, position + match.size]], np.int64)))
            byte_count += match.size
    return KeyQueryResult(
        record_count=len(pieces),
        slices=join_pieces(pieces, byte_count),
        damaged=damaged,
        next_page_token=next_page_token,
        indexed_offset=indexed_offset,
        uncovered=tuple(uncovered),
    )
