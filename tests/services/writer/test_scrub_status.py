"""A running writer reads all of its store: how far it is, and what it has found, is in its status."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_store import record
from real_processes import until
from three_services import ThreeServices, three_services

from penstock.v1 import writer_pb2
from storage.scrub import worker

BODY = bytes(1 << 20)
COUNT = 7  # more than what is read at once
READ_S = 100  # the device serves the scrub after everybody else, also those of other tests


@pytest.fixture(autouse=True)
def due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BEGIN_S", 0.01)
    monkeypatch.setattr(worker, "LOOK_S", 0.01)


@contextmanager
def filled(store: Path, bytes_per_s: int) -> Iterator[ThreeServices]:
    with three_services(store, scrub_interval_ms=1, scrub_bytes_per_s=bytes_per_s) as running:
        running.writer.CreateTopic(writer_pb2.CreateTopicRequest(name="t", queue_count=1))
        for _ in range(COUNT):
            request = writer_pb2.ProduceBatchRequest(records=record(body=BODY))
            running.writer.ProduceBatch(request, timeout=30)
        yield running


def status(services: ThreeServices) -> writer_pb2.GetWriterStatusResponse:
    return services.writer.GetWriterStatus(writer_pb2.GetWriterStatusRequest(), timeout=30)


def test_how_far_it_is(tmp_path: Path) -> None:
    with filled(tmp_path / "store", bytes_per_s=1 << 40) as services:
        until(lambda: status(services).scrub_completed_ms > 0, READ_S)
    shutil.rmtree(
        tmp_path / "store" / "journal"
    )  # or a pass under way goes on, whose end may be one read away
    with three_services(tmp_path / "store", scrub_interval_ms=1, scrub_bytes_per_s=1) as services:
        until(lambda: status(services).scrub_position > 0, READ_S)
        now = status(services)
        assert 0 < now.scrub_position < now.scrub_end <= now.appended_offset
        assert now.scrub_finding_count == 0


def test_what_it_has_found(tmp_path: Path) -> None:
    with filled(tmp_path / "store", bytes_per_s=1 << 40) as services:
        with (tmp_path / "store" / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(len(BODY) // 2)
            file.write(b"\1")
        until(lambda: status(services).scrub_finding_count > 0, READ_S)
        assert status(services).scrub_last_finding.startswith("log-record: commitlog/")
