"""No descriptor, or no memory for a map, to be had for a while: refused, and nothing else."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_store import (
    append,
    check_queues_match_log,
    record,
    small_config,
)

from storage.errors import StoreBusy
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
                lambda: writer.delete_topic("t"),
                lambda: writer.staged.stage("app", 1, "a"),
            ):
                with pytest.raises(StoreBusy, match="Too many open files") as busy:
                    refused()
                assert busy.value.retry_delay_ms > 0
            writer.create_topic("new", 1)  # into the journal, which is open
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
