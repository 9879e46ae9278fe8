"""Index files deleted under the services: a query names the range, or says how far the index is."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from three_services import three_services

from penstock.v1 import common_pb2, indexer_pb2, reader_pb2, writer_pb2
from storage.index.builder import LOOK_S
from storage.index.directory import IndexDirectory
from storage.view.index.key_query import LISTING_AGE_MAX_S

COUNT = 3000  # records with a key each; an index file of the tests' shape holds 4000
NOT_COVERED = -1


def test_a_deleted_index_file_costs_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query finds its message, or says that it may be missing: by the range, or by the indexed offset."""
    looks = threading.Lock()
    files_lost = IndexDirectory.missing

    def look(files: IndexDirectory) -> list[int]:
        with looks:
            return files_lost(files)

    monkeypatch.setattr(IndexDirectory, "missing", look)
    with three_services(tmp_path / "store") as services:
        create = writer_pb2.CreateTopicRequest(name="t", queue_count=1)
        services.writer.CreateTopic(create, timeout=20)
        for begin in range(0, COUNT, 1000):
            messages = [
                common_pb2.Message(topic="t", body=b"x", keys=[f"k{n}", "all"], queue_id=0)
                for n in range(begin, begin + 1000)
            ]
            services.writer.Produce(writer_pb2.ProduceRequest(messages=messages), timeout=30)
        wait = indexer_pb2.WaitIndexedRequest(commit_offset=services.appended_offset())
        services.indexer.WaitIndexed(wait, timeout=30)

        end = services.appended_offset()

        def found(key: str) -> int:
            request = reader_pb2.QueryByKeyRequest(topic="t", key=key)
            answer = services.reader.QueryByKey(request, timeout=20)
            is_covered = not answer.uncovered and answer.indexed_offset >= end
            return int(answer.record_count) if is_covered else NOT_COVERED

        assert found("k5") == found(f"k{COUNT - 1}") == 1
        for number, key in ((0, "k5"), (-1, f"k{COUNT - 1}")):
            files = sorted((tmp_path / "store" / "index").iterdir())
            assert len(files) > 1
            lost = files[number]
            with looks:  # the indexer has not missed it yet
                lost.unlink()
                time.sleep(LISTING_AGE_MAX_S)
                if number == 0:  # the newest is missed within a second
                    assert found(key) == NOT_COVERED
            time.sleep(LOOK_S + 0.2)
            until = time.monotonic() + 60
            while (now := found(key)) != 1:
                assert now == NOT_COVERED
                assert time.monotonic() < until
                time.sleep(0.02)
            assert lost.name in caplog.text
        assert (
            services.indexer.GetIndexerStatus(
                indexer_pb2.GetIndexerStatusRequest(), timeout=10
            ).problem
            == ""
        )
