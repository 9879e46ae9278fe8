"""Queries by key: candidates from the index files, proof from the records.

An index file knows hashes only, so every candidate's topic, key and store time are compared in the
record itself. Pages go from the newest message to the oldest; within a page records stand by
ascending commit offset, as a broker sends them.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.commit_log_view import CommitLogView
from storage.config import StoreConfig
from storage.errors import InvalidMessage
from storage.files.filesystem import ByteArray, FileSystem
from storage.files.mapped_file import ReadOnlyMappedFile
from storage.format.index import HEADER_SIZE, IndexHeader, file_size, key_hash
from storage.format.names import parse_index_file_name
from storage.kernels import pull as kernels
from storage.message import Damage, KeyQueryResult
from storage.pull import damage_reason, join_pieces

PAGE_MAX: Final = 64
CHAIN_STEP: Final = 256
DEDUCE_FROM: Final = 4_096  # entries of a file that must agree with a number of slots
FOREVER: Final = (1 << 63) - 1


class IndexFileView(NamedTuple):
    """One index file, mapped; ``number`` is its name."""

    number: int
    array: ByteArray
    slot_count: int

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return IndexHeader.decode(self.array[:HEADER_SIZE].tobytes())


class KeyIndex:
    """Read access to ``index/``. Safe to use from several threads."""

    def __init__(self, filesystem: FileSystem, directory: Path, config: StoreConfig) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._slot_count = config.index_slot_count
        self._file_size = file_size(config.index_slot_count, config.index_entry_count)
        self._guard = threading.Lock()
        self._mapped: dict[int, ReadOnlyMappedFile] = {}
        self._slot_counts: dict[int, int] = {}

    def files(self) -> list[IndexFileView]:
        """Return all files, newest first; those come and gone since are taken notice of."""
        with self._guard:
            present: dict[int, ReadOnlyMappedFile] = {}
            for entry in self._filesystem.list_directory(self._directory):
                number = parse_index_file_name(entry.name)
                if entry.is_directory or number is None or entry.size < HEADER_SIZE:
                    continue
                mapped = self._mapped.get(number)
                if mapped is None or mapped.size != entry.size:
                    try:
                        mapped = ReadOnlyMappedFile.open(
                            self._filesystem, self._directory / entry.name, start_offset=0
                        )
                    except FileNotFoundError:
                        continue
                present[number] = mapped
            self._mapped = present
            return [
                IndexFileView(number, present[number].array, self._slots_of(present[number].array))
                for number in sorted(present, reverse=True)
            ]

    def _slots_of(self, array: ByteArray) -> int:
        if len(array) == self._file_size:
            return self._slot_count
        known = self._slot_counts.get(len(array))
        if known is None:
            known = int(kernels.deduce_slot_count(array, DEDUCE_FROM))
            if known:
                self._slot_counts[len(array)] = known
        return known

    def refresh(self) -> None:
        """Forget what was deduced."""
        with self._guard:
            self._slot_counts.clear()

    @property
    def end_offset(self) -> int:
        """Commit offset of the last indexed record, by the newest file; 0 without files."""
        files = self.files()
        return files[0].header.end_commit_offset if files else 0

    def close(self) -> None:
        """Let go of every map."""
        with self._guard:
            self._mapped.clear()


class _Place(NamedTuple):
    """Where the next page goes on: behind an entry of a file, below a commit offset."""

    number: int
    entry: int
    below: int

    @classmethod
    def parse(cls, token: str) -> _Place:
        if not token:
            return cls(FOREVER, 0, FOREVER)
        try:
            number, entry, below = (int(part, 36) for part in token.split("."))
        except ValueError:
            raise InvalidMessage("page_token", f"{token!r} is none that was given out") from None
        return cls(number, entry, below)

    @property
    def token(self) -> str:
        return ".".join(np.base_repr(part, 36) for part in self)


class _Search:
    """One page of one query."""

    def __init__(
        self, log: CommitLogView, topic: str, key: str, unique: bool, begin_ms: int, end_ms: int
    ) -> None:
        self._log = log
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._key = np.frombuffer(key.encode(), np.uint8)
        self._hash = key_hash(topic, key)
        self._unique = unique
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self.found: list[tuple[int, int, _Place]] = []  # commit offset, size, place behind it
        self.damaged: list[Damage] = []

    def search_file(self, file: IndexFileView, place: _Place, wanted: int) -> _Place:
        """Add what one file has to ``found`` until there are ``wanted``; return where it stopped."""
        header = file.header
        if header.begin_timestamp_ms > self._end_ms or header.end_timestamp_ms < self._begin_ms:
            return place
        following = place.entry if place.number == file.number else 0
        entries = np.empty((CHAIN_STEP, kernels.ENTRY_COLUMNS), np.int64)
        while True:
            count, following = kernels.walk_chain(
                file.array, file.slot_count, header.next_entry, self._hash, following, entries
            )
            mine = entries[:count]
            place = self._match(file, mine[mine[:, kernels.KEY_HASH] == self._hash], place)
            if not following or len(self.found) >= wanted:
                return place

    def _match(self, file: IndexFileView, entries: npt.NDArray[np.int64], place: _Place) -> _Place:
        offsets = np.ascontiguousarray(entries[:, kernels.ENTRY_COMMIT_OFFSET])
        states = np.full(len(offsets), kernels.KEY_ABSENT, np.int64)
        sizes = np.zeros(len(offsets), np.int64)
        searched: set[int] = set()
        for offset in offsets.tolist():
            span = self._log.span(offset)
            if span is not None and span.start_offset not in searched:
                searched.add(span.start_offset)
                kernels.match_keys(
                    span.array, span.start_offset, span.end_offset, offsets,
                    self._topic, self._key, self._unique, self._begin_ms, self._end_ms,
                    states, sizes,
                )  # fmt: skip
        for entry, offset, state, size in zip(
            entries[:, kernels.ENTRY].tolist(), offsets.tolist(), states.tolist(), sizes.tolist(),
            strict=True,
        ):  # fmt: skip
            # Newer entries point further on; what is not below the last is a repeated one.
            if offset >= place.below:
                continue
            if state == kernels.GOOD:
                place = _Place(file.number, entry, offset)
                self.found.append((offset, size, place))
            elif state >= kernels.DAMAGED and all(d.commit_offset != offset for d in self.damaged):
                self.damaged.append(
                    Damage(
                        queue_offset=-1, commit_offset=offset, size=size,
                        reason=damage_reason(state),
                    )
                )  # fmt: skip
        return place


def query_by_key(
    log: CommitLogView,
    index: KeyIndex,
    *,
    topic: str,
    key: str,
    unique: bool,
    begin_timestamp_ms: int,
    end_timestamp_ms: int | None,
    max_messages: int,
    page_token: str,
    indexed_offset: int,
) -> KeyQueryResult:
    """Return one page of the messages that carry a key; see ``StoreReader.query_by_key``."""
    if not key:
        raise InvalidMessage("key", "is empty")
    if not unique and " " in key:
        raise InvalidMessage("key", "contains a space; ask for one key at a time")
    count_max = min(max(max_messages, 1), PAGE_MAX)
    place = _Place.parse(page_token)
    end_ms = FOREVER if end_timestamp_ms is None else end_timestamp_ms
    search = _Search(log, topic, key, unique, begin_timestamp_ms, end_ms)
    for file in index.files():
        if file.number > place.number or not file.slot_count:
            continue
        place = search.search_file(file, place, count_max + 1)
        if len(search.found) > count_max:
            break
    page = search.found[:count_max]
    more = len(search.found) > count_max
    pieces = []
    for offset, size, _ in sorted(page):
        span = log.span(offset)
        if span is not None:
            position = offset - span.start_offset
            pieces.append((span.array, np.array([[position, position + size]], np.int64)))
    return KeyQueryResult(
        record_count=len(pieces),
        slices=join_pieces(pieces, sum(size for _, size, _ in page)),
        damaged=tuple(search.damaged),
        next_page_token=page[-1][2].token if more else "",
        indexed_offset=indexed_offset,
    )
