"""A process that may have few files open serves many queues all the same."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from engine_store import small_config
from open_files import descriptors_below

from storage import Message, MessageStore
from storage.files import open_files


def test_queues_share_the_files_that_a_process_may_have_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files.resource, "getrlimit", lambda _kind: (64, 64))
    with MessageStore.open(tmp_path, small_config()) as store:
        store.create_topic("wide", 100)
        store.put_all([Message(topic="wide", body=b"x", queue_id=n) for n in range(100)])
        for _ in range(2):
            found = [store.pull("wide", n, queue_offset=0).record_count for n in range(100)]
            assert found == [1] * 100
        assert len(descriptors_below(tmp_path / "consumequeue")) < 64


def test_the_limit_is_raised_as_far_as_it_goes_and_shared() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = open_files.ENOUGH if hard == resource.RLIM_INFINITY else min(hard, open_files.ENOUGH)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough - 1, hard))
        open_files.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
        assert [open_files.at_most(n, share=2) for n in (400, 2_048)] == [400, 500]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
