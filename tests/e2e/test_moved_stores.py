"""A store's directory that is renamed or removed under the running services."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2
from real_processes import Running, health, one_service, supervisor, until
from run_cli import SMALL_FILES
from steps_to_try import cases_to_try

from penstock import Client, FailedPrecondition, PenstockError, ResourceExhausted

BODY = b"x" * (40 << 10)


class Producing:
    """Produces numbered messages of some size until told to stop; keeps what was acknowledged."""

    def __init__(self, client: Client) -> None:
        self.acknowledged: list[int] = []
        self.refusals: list[PenstockError] = []
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Producing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._client.produce("t", b"%08d" % number + BODY, keys=[f"n{number}"], queue_id=0)
                self.acknowledged.append(number)
            except ResourceExhausted:
                time.sleep(0.02)
            except PenstockError as refused:
                self.refusals.append(refused)
                return
            number += 1

    def goes_on(self, count: int) -> None:
        """Wait until so many more have been acknowledged, which takes new files of every kind."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted or bool(self.refusals), 60)
        assert not self.refusals


@contextmanager
def services(store: Path, *flags: str) -> Iterator[tuple[Client, dict[str, Running]]]:
    with (
        one_service("writer", store, *SMALL_FILES, *flags) as writer,
        one_service("reader", store) as reader,
        one_service("indexer", store) as indexer,
    ):
        running = {"writer": writer, "reader": reader, "indexer": indexer}
        addresses = {name: each.wait_serving(name)[0] for name, each in running.items()}
        with Client(**addresses, timeout_s=20) as client:
            client.wait_ready(30)
            yield client, running


def numbers_in(client: Client) -> list[int]:
    return [int(record.body[:8]) for record in client.consume("t", follow=False)]


@pytest.mark.parametrize("mode", cases_to_try(["sync", "async"]))
def test_a_renamed_store_ends_writing_and_keeps_what_was_acknowledged(
    tmp_path: Path, mode: str
) -> None:
    """Under load: no directory of the old name comes back, and nothing is missing at the new place."""
    store, moved = tmp_path / "store", tmp_path / "elsewhere" / "store"
    moved.parent.mkdir()
    with services(store, "--flush-mode", mode) as (client, _):
        client.create_topic("t", queues=1)
        with Producing(client) as producing:
            producing.goes_on(60)
            store.rename(moved)
            until(lambda: bool(producing.refusals), 30)
        assert isinstance(producing.refusals[0], FailedPrecondition)
        assert "was renamed or removed" in str(producing.refusals[0])
        writer = client.addresses.writer
        until(lambda: health(writer) == health_pb2.HealthCheckResponse.NOT_SERVING)
        with pytest.raises(PenstockError):
            client.create_topic("made-later", queues=1)
    assert not store.exists()
    with services(moved, "--flush-mode", mode) as (client, _):
        found = numbers_in(client)
        assert set(producing.acknowledged) <= set(found)
        assert len(found) == len(set(found))


def test_a_service_is_not_started_again_where_another_store_would_begin(tmp_path: Path) -> None:
    store, moved = tmp_path / "store", tmp_path / "moved"
    with supervisor(store) as serve:
        _, writer = serve.wait_serving("writer")
        serve.wait_serving("indexer")
        store.rename(moved)
        os.kill(writer, signal.SIGKILL)
        assert serve.process.wait(60) == 4
        assert "is not started again" in serve.text()
    assert not store.exists()
