"""Questions about a store, answered as a broker's own methods answer them.

``{"kind": …}`` with fields; answers repeat the question::

    offsetByTime     topic, queue, timestamp, boundary (LOWER, UPPER; absent: LOWER)
    key              topic, key, max, begin, end
    id, offset       msgId / offset
    get              topic, queue, offset, max, optional maxBytes, filter
    minOffset, maxOffset, earliestTime    topic, queue (earliestTime also without)
    storeTime, commitLogOffset            topic, queue, offset

A record that is damaged is not among a ``get``'s answers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from recovered_copy import recovered_copy

from storage.errors import InvalidMessage
from storage.format.message_id import decode_message_id
from storage.offline.extension import QueueExtension
from storage.offline.lines import Line, record_fields
from storage.offline.opened import OfflineStore, open_offline
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.tag_filter import MATCH_ALL, TagFilter
from storage.view.queues.time_search import Boundary

from .keys import offsets_by_key
from .pulls import min_offset_of, pull_as_broker
from .times import offset_by_time, stored_at

BYTES_MAX: Final = 128 << 20
UNKNOWN_TIME: Final = -1
NEGATIVE: Final = "IllegalArgumentException"  # what a broker throws at a negative length
NEEDED_FIELDS: Final = {
    "offsetByTime": ("topic", "timestamp"),
    "key": ("topic", "key", "max", "begin", "end"),
    "id": ("msgId",),
    "offset": ("offset",),
    "get": ("topic", "offset", "max"),
    "minOffset": ("topic",),
    "maxOffset": ("topic",),
    "earliestTime": (),
    "storeTime": ("topic", "offset"),
    "commitLogOffset": ("topic", "offset"),
}
_WRONG_VALUES: Final = frozenset(kind.__name__ for kind in (KeyError, TypeError, ValueError))
ID_FIELDS: Final = ("topic", "queueId", "queueOffset", "recordCrc32", "undecodable")


def ask(
    directory: Path | str,
    questions: Sequence[Line],
    spec: dict[str, Any] | Path | None = None,
) -> Iterator[Line]:
    """Yield ``{"question", "answer"}`` for each question about a recovered copy; ``spec`` as of ``open_offline``."""
    with tempfile.TemporaryDirectory(prefix="penstock-ask-") as scratch:
        copy = recovered_copy(Path(directory).absolute(), Path(scratch), spec)
        with open_offline(copy, spec) as store:
            answerer = _Answerer(store)
            for question in questions:
                yield {"question": question, "answer": answerer.answer(question)}


def problem_of(question: Line, answer: Line) -> str:
    """Return why what was asked is no question; empty where a broker would take it for one."""
    kind = str(question.get("kind"))
    if kind not in NEEDED_FIELDS:
        return f"there is no kind {kind!r}, but {', '.join(sorted(NEEDED_FIELDS))}"
    if missing := [name for name in NEEDED_FIELDS[kind] if name not in question]:
        return f"kind {kind!r} needs {', '.join(missing)}"
    # What a broker throws has other names.
    return "a field has a wrong value" if answer.get("error") in _WRONG_VALUES else ""


class _Thrown(Exception):
    """A broker's own method throws here; the message is the exception's name."""


class _Answerer:
    """Answers from one opened store."""

    def __init__(self, store: OfflineStore) -> None:
        self._store = store
        self._log: CommitLogView = store.reader.log
        self._kinds: dict[str, Callable[[Line], Line]] = {
            "offsetByTime": self._offset_by_time,
            "key": self._key,
            "id": self._id,
            "offset": lambda question: self._record(int(question["offset"])),
            "get": self._get,
            "minOffset": lambda question: {"offset": self._range(question)[0]},
            "maxOffset": lambda question: {"offset": self._range(question)[1]},
            "earliestTime": self._earliest_time,
            "storeTime": lambda question: {"timestamp": self._unit_time(question)},
            "commitLogOffset": self._commit_offset,
        }

    def answer(self, question: Line) -> Line:
        """Return the answer, or ``{"error": …}`` where a broker throws."""
        kind = self._kinds.get(str(question.get("kind")))
        if kind is None:
            return {"error": "IllegalArgumentException"}
        try:
            return kind(question)
        except _Thrown as thrown:
            return {"error": str(thrown)}
        except (InvalidMessage, KeyError, TypeError, ValueError) as error:
            return {"error": type(error).__name__}

    def _queue(self, question: Line) -> ConsumeQueueView:
        topic, queue_id = str(question["topic"]), int(question.get("queue", 0))
        return self._store.reader.queue_view(topic, queue_id)

    def _range(self, question: Line) -> tuple[int, int]:
        queue = self._queue(question)
        max_offset = queue.max_offset(self._log.visible_offset)
        return min_offset_of(queue, self._log.min_offset, max_offset), max_offset

    def _offset_by_time(self, question: Line) -> Line:
        boundary = Boundary[question.get("boundary") or "LOWER"]
        offset = offset_by_time(
            self._log,
            self._queue(question),
            timestamp_ms=int(question["timestamp"]),
            boundary=boundary,
        )
        return {"offset": offset}

    def _key(self, question: Line) -> Line:
        if int(question["max"]) < 0:
            raise _Thrown(NEGATIVE)
        found = offsets_by_key(
            self._store.reader.index.look(),
            str(question["topic"]),
            str(question["key"]),
            count_max=int(question["max"]),
            begin_ms=int(question["begin"]),
            end_ms=int(question["end"]),
        )
        readable = [
            offset for offset in sorted(found.commit_offsets) if self._log.check(offset)[0] > 0
        ]
        return {
            "lastUpdateTimestamp": found.last_update_timestamp_ms,
            "lastUpdatePhyOffset": found.last_update_commit_offset,
            "commitLogOffsets": readable,
        }

    def _id(self, question: Line) -> Line:
        message_id = decode_message_id(str(question["msgId"]))
        return {
            "address": f"/{message_id.store_host}",
            "commitLogOffset": message_id.commit_offset,
            **self._record(message_id.commit_offset),
        }

    def _record(self, commit_offset: int) -> Line:
        """A broker takes the four bytes there for a size, whatever they are."""
        head = self._log.bytes_at(commit_offset, 4)
        size = 0 if head is None else int.from_bytes(head, "big", signed=True)
        if size < 0:
            raise _Thrown(NEGATIVE)
        record = None if head is None else self._log.bytes_at(commit_offset, size)
        if record is None:
            return {"found": False}
        fields = record_fields(record)
        known: Line = {name: fields[name] for name in ID_FIELDS if name in fields}
        return {"found": True, "size": size, **known}

    def _get(self, question: Line) -> Line:
        expression = question.get("filter")
        try:
            tag_filter = MATCH_ALL if expression is None else TagFilter(str(expression))
        except InvalidMessage:
            raise _Thrown("Exception") from None
        topic, queue_id = str(question["topic"]), int(question.get("queue", 0))
        return pull_as_broker(
            self._log,
            self._queue(question),
            QueueExtension(self._store.filesystem, self._store.paths.root, topic, queue_id),
            queue_offset=int(question["offset"]),
            max_messages=int(question["max"]),
            max_bytes=int(question.get("maxBytes", BYTES_MAX)),
            tag_filter=tag_filter,
        )

    def _earliest_time(self, question: Line) -> Line:
        if question.get("topic") is None:
            size, _ = self._log.check(self._log.min_offset)
            return {"timestamp": stored_at(self._log, self._log.min_offset, size)}
        low, high = self._range(question)
        time_ms = self._unit_time({**question, "offset": low}) if low < high else UNKNOWN_TIME
        return {"timestamp": time_ms}

    def _unit_time(self, question: Line) -> int:
        low, high = self._range(question)
        unit = self._queue(question).unit(int(question["offset"]))
        if not unit.size or not low <= int(question["offset"]) < high:
            return UNKNOWN_TIME
        return stored_at(self._log, unit.commit_offset, unit.size)

    def _commit_offset(self, question: Line) -> Line:
        low, high = self._range(question)
        unit = self._queue(question).unit(int(question["offset"]))
        if not unit.size or not low <= int(question["offset"]) < high:
            return {"offset": 0}
        return {"offset": unit.commit_offset}
