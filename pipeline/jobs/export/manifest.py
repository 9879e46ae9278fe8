"""What an export has written so far: ranges of queue offsets by store, topic and queue.

A store is known by its id; one that has none, a broker's, by its path. A topic that was deleted and made
again counts its queue offsets from 0 again, so ranges are of one incarnation of a topic
(``storage.view.incarnations``).

``_penstock/manifest.json`` beside the data, replaced in one step. A run first writes its data where no
reader looks, then puts itself into ``pending`` with its ranges and files, then makes the files visible,
and then moves its ranges to ``stores`` and is pending no more. So a killed run is either not mentioned,
and what it wrote is removed by the next one; or pending, and the next one finds out whether its files
became visible and finishes or undoes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipeline.errors import InvalidOption, PipelineError
from pipeline.jobs.new_directory import sync_path

DIRECTORY: Final = "_penstock"
MANIFEST: Final = "manifest.json"
VERSION: Final = 2


class QueueOfStore(NamedTuple):
    """One queue of one incarnation of a topic."""

    store: str
    topic: str
    incarnation: int
    queue_id: int


Ranges = dict[QueueOfStore, list[tuple[int, int]]]


@dataclass
class Manifest:
    """The document. ``stores`` has the id of the store at each path, None for a store without one."""

    path: Path
    export_id: str
    format: str
    columns: list[str]
    run: int = 0
    stores: dict[str, str | None] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    pending: dict[str, Any] | None = None

    @classmethod
    def open(cls, target: Path, file_format: str, columns: list[str]) -> Manifest:
        """Read the manifest of an export, or begin one. Raises InvalidOption if they do not match."""
        path = target / DIRECTORY / MANIFEST
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError:
            return cls(path, secrets.token_hex(8), file_format, columns)
        except ValueError as error:
            raise PipelineError(
                f"{path} is damaged: {error}; export to a new directory, or restore it"
            ) from error
        if document.get("version") != VERSION:
            raise PipelineError(
                f"{path} is of version {document.get('version')}, not {VERSION}: export to a new"
                " directory, or with the version of Penstock that wrote it"
            )
        if document["format"] != file_format:
            raise InvalidOption(
                "format",
                f"{target} holds an export of format {document['format']!r}; go on with that, or"
                " export to a new directory",
            )
        if document["columns"] != columns:
            raise InvalidOption(
                "body", f"{target} holds an export of other columns; export to a new directory"
            )
        manifest = cls(path, document["exportId"], file_format, columns, document["run"])
        manifest.stores = document["stores"]
        manifest.ranges = _decoded(document["exported"])
        manifest.pending = document["pending"]
        return manifest

    def save(self) -> None:
        """Replace the document; durable on return."""
        document = {
            "version": VERSION,
            "exportId": self.export_id,
            "format": self.format,
            "columns": self.columns,
            "run": self.run,
            "stores": self.stores,
            "exported": _encoded(self.ranges),
            "pending": self.pending,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
        sync_path(partial)
        partial.replace(self.path)
        sync_path(self.path.parent)

    def begin(self, ranges: Ranges, files: list[dict[str, Any]]) -> None:
        """Say what this run will make visible; from here on it is finished or undone as a whole."""
        self.pending = {"run": self.run + 1, "exported": _encoded(ranges), "files": files}
        self.save()

    def finish(self) -> None:
        """Count the pending run."""
        assert self.pending is not None
        for key, ranges in _decoded(self.pending["exported"]).items():
            self.ranges[key] = joined(self.ranges.get(key, []) + ranges)
        self.run = self.pending["run"]
        self.pending = None
        self.save()

    def undo(self) -> None:
        """Forget the pending run."""
        self.pending = None
        self.save()

    def missing(self, key: QueueOfStore, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of ``[begin, end)`` that have not been exported."""
        found = []
        for low, high in self.ranges.get(key, []):
            if high <= begin:
                continue
            if low >= end:
                break
            if low > begin:
                found.append((begin, low))
            begin = max(begin, high)
        if begin < end:
            found.append((begin, end))
        return found

    def exported_end(self, key: QueueOfStore) -> int | None:
        """Return the offset after the last exported one of a queue, None before the first run."""
        ranges = self.ranges.get(key)
        return ranges[-1][1] if ranges else None

    @property
    def target(self) -> Path:
        """The directory of the export."""
        return self.path.parent.parent

    def is_made_again(self, key: QueueOfStore) -> bool:
        """Return whether another incarnation of a topic was exported, and nothing of this one."""
        of_topic = {known.incarnation for known in self.ranges if known[:2] == key[:2]}
        return bool(of_topic) and key.incarnation not in of_topic

    def match(self, path: str, store_id: str | None) -> None:
        """Take a store for the one that was exported from a path, or note it.

        Raises InvalidOption if another store was exported from this path.
        """
        known = self.stores.setdefault(path, store_id)
        if known != store_id:
            raise InvalidOption(
                "store",
                f"{path} is another store than the one that was exported to {self.target};"
                " export it to a new directory",
            )

    def paths_of(self, store_id: str) -> list[str]:
        """Return the paths from which a store was exported."""
        return [path for path, known in self.stores.items() if known == store_id]


@contextlib.contextmanager
def held_export(target: Path) -> Iterator[None]:
    """Hold an export's directory; InvalidOption if another job exports to it now."""
    directory = target / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidOption("to", f"another job exports to {target}; wait for it") from None
        yield
    finally:
        os.close(descriptor)


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges and join those that touch."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _encoded(ranges: Ranges) -> list[dict[str, Any]]:
    topics: dict[tuple[str, str, int], dict[str, Any]] = {}
    for key, mine in sorted(ranges.items()):
        queues = topics.setdefault(key[:3], {})
        queues[str(key.queue_id)] = [list(each) for each in mine]
    return [
        {"store": store, "topic": topic, "incarnation": incarnation, "queues": queues}
        for (store, topic, incarnation), queues in topics.items()
    ]


def _decoded(topics: Iterable[Mapping[str, Any]]) -> Ranges:
    return {
        QueueOfStore(topic["store"], topic["topic"], topic["incarnation"], int(queue_id)): [
            (int(begin), int(end)) for begin, end in ranges
        ]
        for topic in topics
        for queue_id, ranges in topic["queues"].items()
    }
