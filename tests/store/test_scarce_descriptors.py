"""No descriptor, or no memory for a map, to be had for a while: refused, and nothing else."""

from __future__ import annotations

import errno
import mmap
import os
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from engine_store import (
    append,
    check_queues_match_log,
    queue_units_on_disk,
    record,
    records_on_disk,
    small_config,
)
from staged_records import staged

from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.errors import StoreBusy, TopicExists, TopicNotFound
from storage.files.filesystem import OsFileSystem
from storage.findings import DAMAGE
from storage.indexer import StoreIndexer
from storage.offline.doctor import doctor
from storage.reader import StoreReader
from storage.writer import StoreWriter

QUICK = {"queue_flush_interval_ms": 20, "flush_interval_ms": 20}
BIG = b"x" * 20_000


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Have the kernel refuse every new descriptor of this process; those that are open stay."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_without_descriptors_what_needs_one_is_refused_and_works_again(
    tmp_path: Path, mode: str
) -> None:
    with StoreWriter.open(tmp_path / "store", small_config(flush_mode=mode, **QUICK)) as writer:
        writer.create_topic("t", 8)
        append(writer, record(queue_id=0))
        append(writer, record(queue_id=1))
        time.sleep(0.1)
        stored = 2
        with no_descriptors():
            writer.append_batch(record(queue_id=0))  # of a queue that it knows
            stored += 1
            for refused in (
                lambda: writer.create_topic("other", 1),
                lambda: writer.update_topic("t", queue_count=9),
                lambda: writer.delete_topic("t"),
                lambda: writer.staged.stage("app", 1, "a"),
            ):
                with pytest.raises(StoreBusy, match="Too many open files") as busy:
                    refused()
                assert busy.value.retry_delay_ms > 0
            _, queues = writer.describe_topic("t")  # it knows which have no file yet
            assert len(queues) == 8
            writer.append_batch(record(queue_id=7))
            stored += 1
            with pytest.raises(
                StoreBusy
            ):  # the log rolls into files that are at hand, then no more
                for _ in range(40):
                    writer.append_batch(record(body=BIG))
                    stored += 1
            time.sleep(0.3)  # the workers meet it, too
            assert writer.status().writable, writer.status().problem
        result = append(writer, record(queue_id=7))
        stored += 1
        assert writer.wait_acknowledged(result.end_commit_offset, 10)
        assert writer.wait_dispatched(result.end_commit_offset, 10)
        writer.create_topic("other", 1)
        assert writer.status().problem == ""
    assert not (tmp_path / "store" / "abort").exists()
    assert check_queues_match_log(tmp_path / "store") == stored


def until_room(do: Callable[[], Any]) -> Any:
    """Do something, again for as long as there is no room for it."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return do()
        except StoreBusy:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)


class Refusals:
    """Has calls that need a descriptor, or memory for a map, fail now and then while it is ``on``."""

    def __init__(self, one_in: int, code: int) -> None:
        self.on = False
        self.refused_count = 0
        self._one_in = one_in
        self._code = code
        self._dice = random.Random(one_in)

    def install(self, patch: pytest.MonkeyPatch, store: Path) -> None:
        opened, mapped = os.open, mmap.mmap

        def open_(
            path: Any, flags: int, *arguments: Any, dir_fd: Any = None, **options: Any
        ) -> int:
            if dir_fd is not None or str(store) in str(path):
                self._meet()
            return opened(path, flags, *arguments, dir_fd=dir_fd, **options)

        def map_(*arguments: Any, **options: Any) -> Any:
            if arguments[0] >= 0:
                self._meet()
            return mapped(*arguments, **options)

        patch.setattr(os, "open", open_)
        patch.setattr("storage.files.system.os_file.mmap.mmap", map_)

    def _meet(self) -> None:
        if self.on and self._dice.randrange(self._one_in) == 0:
            self.refused_count += 1
            raise OSError(self._code, os.strerror(self._code))


def work(directory: Path, config: StoreConfig, refusals: Refusals) -> int:
    """Do a little of everything; return how many records are in queues afterwards."""
    count = 0
    with (
        StoreWriter.open(directory, config) as writer,
        StoreIndexer.open(
            directory, config, filesystem=OsFileSystem(), clock=SystemClock(),
            durable_interval_ms=0,
        ) as indexer,
        StoreReader.open(directory) as reader,
    ):  # fmt: skip
        indexer.start()
        refusals.on = True
        for name in ("t", "gone"):
            with_room_once(lambda name=name: writer.create_topic(name, 8), TopicExists)
        for number in range(6):
            until_room(lambda n=number: append(writer, record(queue_id=n) + record(queue_id=n + 1)))
            until_room(lambda: append(writer, record(body=BIG)))
            count += 3
        until_room(lambda: append(writer, record(topic="gone")))
        stage = until_room(lambda: writer.staged.stage("app", 1, f"a{time.monotonic_ns()}"))
        attempt = stage._writer.header.attempt
        until_room(lambda: stage.add(staged("app", 1, attempt, [b"1", b"2"])))
        until_room(stage.seal)
        until_room(lambda: writer.staged.commit("app", 1, [attempt]))
        with_room_once(lambda: writer.delete_topic("gone"), TopicNotFound)
        end = until_room(lambda: append(writer, record(keys="last"))).end_commit_offset
        count += 3
        assert writer.wait_dispatched(end, 20)
        assert indexer.wait_indexed(end, 20)
        found = until_room(lambda: reader.pull("t", 0, queue_offset=0, max_messages=100))
        assert found.record_count > 1
        assert until_room(lambda: reader.query_by_key("t", "last")).record_count == 1
        refusals.on = False
        deadline = time.monotonic() + 10
        while writer.status().problem or indexer.problem:
            assert time.monotonic() < deadline, (writer.status().problem, indexer.problem)
            time.sleep(0.01)
        assert writer.status().writable
    return count


def with_room_once(do: Callable[[], Any], done: type[Exception]) -> None:
    """Do what may have been done although it was refused at its very end."""
    with suppress(done):
        until_room(do)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize("one_in", [6, 8, 16])  # deleting a topic takes some twenty in a row
def test_any_refused_descriptor_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_in: int, code: int
) -> None:
    directory = tmp_path / "store"
    refusals = Refusals(one_in, code)
    with monkeypatch.context() as patch:
        refusals.install(patch, directory)
        count = work(directory, small_config(**QUICK), refusals)
    assert refusals.refused_count > 1
    removed = 1  # of the topic that was deleted
    assert len(records_on_disk(directory)) == count + removed
    assert sum(len(queue_units_on_disk(directory, "t", n)) for n in range(7)) == count
    assert not [line for line in doctor(directory) if line["severity"] == DAMAGE]
    with StoreWriter.open(directory, small_config()) as writer:
        assert writer.status().writable
        assert [topic.name for topic in writer.list_topics()] == ["t"]
