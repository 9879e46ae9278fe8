"""Full disks and failed syncs under the real service processes: what callers get."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from real_processes import Running, health, one_service, until
from run_cli import SMALL_FILES
from steps_to_try import cases_to_try

from penstock import Client, DeliveryFailed, FailedPrecondition, RecordBatch, ResourceExhausted
from services.supervisor import EXIT_FAILED

BODY = b"x" * (50 << 10)
FULL_TIMEOUT_S = 3.0  # refusals of a full disk are tried again for this long


@contextmanager
def client_of(writer: Running, reader: Running) -> Iterator[Client]:
    addresses = {
        name: running.wait_serving(name)[0]
        for name, running in (("writer", writer), ("reader", reader))
    }
    with Client(**addresses, timeout_s=20) as client:
        client.wait_ready(30, services=("writer", "reader"))
        yield client


def fill(client: Client) -> tuple[int, ResourceExhausted]:
    """Store until the disk is full; return how many were acknowledged, and the refusal."""
    stored = 0
    while True:
        try:
            client.produce("t", BODY, queue_id=0, timeout_s=FULL_TIMEOUT_S)
            stored += 1
            assert stored < 1000, "the disk does not fill"
        except ResourceExhausted as refused:
            if "still being created" not in refused.message:  # by a slow disk
                return stored, refused


def bad_disk_writer(store: Path, switches: Path, *flags: str) -> Running:
    return Running(
        "writer_on_bad_disk", "--store", str(store), "--listen", "127.0.0.1:0", *SMALL_FILES, *flags,
        environment={
            "BAD_DISK": str(switches),
            "PYTHONPATH": str(Path(__file__).parents[1] / "support" / "service_support"),
        },
    )  # fmt: skip


def test_a_full_disk_refuses_and_is_written_again_without_a_restart(tmp_path: Path) -> None:
    store, full = tmp_path / "store", tmp_path / "space"
    with (
        bad_disk_writer(store, tmp_path) as writer,
        one_service("reader", store) as reader,
        client_of(writer, reader) as client,
    ):
        client.create_topic("t", queues=1)
        client.produce("t", BODY, queue_id=0)
        full.touch()

        stored, refused = fill(client)
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.retry_delay_ms > 0
        assert "space" in refused.message.lower()
        with pytest.raises(ResourceExhausted):
            batch = RecordBatch("t")
            batch.add_many([BODY] * 20)
            client.produce_batch(batch, timeout_s=FULL_TIMEOUT_S)
        assert health(client.addresses.writer) == health_pb2.HealthCheckResponse.SERVING
        pulled = client.pull("t", 0, 0, max_messages=1, wait_ms=2_000)
        assert [r.body for r in pulled.records] == [BODY]

        full.unlink()
        after = client.produce("t", b"after", queue_id=0)
        assert after.queue_offset == stored + 1
        assert writer.process.poll() is None
        bodies = [r.body for r in client.consume("t", follow=False)]
        assert bodies == [BODY] * (stored + 1) + [b"after"]
        assert writer.stop() == 0, writer.text()


def test_a_writer_killed_on_a_full_disk_starts_and_writes_again_when_space_returns(
    tmp_path: Path,
) -> None:
    """Without space to open the store it ends, without space to append it refuses; readers go on."""
    store, full, no_file = tmp_path / "store", tmp_path / "space", tmp_path / "files"
    with one_service("reader", store) as reader:
        with bad_disk_writer(store, tmp_path) as writer, client_of(writer, reader) as client:
            client.create_topic("t", queues=1)
            client.produce("t", BODY, queue_id=0)
            full.touch()
            stored, _ = fill(client)
            writer.process.kill()
            writer.process.wait(20)
        no_file.touch()  # the store cannot be opened
        with bad_disk_writer(store, tmp_path) as ended:  # `penstock serve` starts it again
            assert ended.process.wait(60) == EXIT_FAILED
            assert "no space" in ended.text().lower()
        no_file.unlink()
        with bad_disk_writer(store, tmp_path) as again:
            address = again.wait_serving("writer")[0]
            where = {"writer": address, "reader": reader.wait_serving("reader")[0]}
            with Client(**where, timeout_s=20) as client:
                with pytest.raises(ResourceExhausted, match="space"):
                    client.produce("t", BODY, queue_id=0, timeout_s=FULL_TIMEOUT_S)
                bodies = [r.body for r in client.consume("t", queues=[0], follow=False)]
                assert bodies == [BODY] * (stored + 1)

                full.unlink()
                after = client.produce("t", b"after", queue_id=0, timeout_s=30)
                assert after.queue_offset == stored + 1
                records = client.consume("t", queues=[0], follow=False)
                assert [r.body for r in records][-1] == b"after"
            assert again.process.poll() is None
            assert again.stop() == 0, again.text()


def until_refused(client: Client) -> list[int]:
    """Produce to queue 0 of `t` until the writer refuses; return the acknowledged queue offsets."""
    acknowledged: list[int] = []
    with pytest.raises(FailedPrecondition, match="Input/output error"):
        for n in range(5, 1_000):
            acknowledged.append(client.produce("t", b"%d" % n, queue_id=0).queue_offset)
            time.sleep(0.01)
    return acknowledged


@pytest.mark.parametrize("mode", cases_to_try(["sync", "async"]))
def test_a_failed_sync_is_final_until_a_restart(tmp_path: Path, mode: str) -> None:
    """Nothing more is acknowledged; reads go on; a restart serves all that was acknowledged."""
    store = tmp_path / "store"
    flags = ["--flush-mode", mode, "--flush-interval-ms", "50"]
    with (
        one_service("reader", store) as reader,
        bad_disk_writer(store, tmp_path, *flags) as writer,
        client_of(writer, reader) as client,
    ):
        client.create_topic("t", queues=1)
        acknowledged = [client.produce("t", b"%d" % n, queue_id=0).queue_offset for n in range(5)]
        (tmp_path / "sync").touch()

        if mode == "sync":
            with pytest.raises(FailedPrecondition, match="Input/output error"):
                client.produce("t", b"lost", queue_id=0)
        else:  # in the page cache, as promised, until the timed flush meets the device
            acknowledged += until_refused(client)
            until(lambda: not client.writer_status().writable)
        (tmp_path / "sync").unlink()  # a device that works again changes nothing

        with pytest.raises(FailedPrecondition, match="nothing more is acknowledged"):
            client.produce("t", b"refused", queue_id=0)
        producer = client.producer(linger_ms=0)
        handles = [producer.send("t", b"refused", queue_id=0) for _ in range(3)]
        assert {type(handle.exception(20)) for handle in handles} == {FailedPrecondition}
        with pytest.raises(DeliveryFailed):
            producer.close()
        until(lambda: health(client.addresses.writer) == 2)
        assert "Input/output error" in client.writer_status().problem
        found = [r.queue_offset for r in client.consume("t", follow=False)]
        assert found[: len(acknowledged)] == acknowledged
        # The refused one may have reached the page cache, where async mode reads it.
        assert len(found) - len(acknowledged) <= (1 if mode == "async" else 0)
        assert writer.stop() in (0, 1)

    with (
        one_service("writer", store) as writer,
        one_service("reader", store) as reader,
        client_of(writer, reader) as client,
    ):
        bodies = [r.body for r in client.consume("t", follow=False)]
        assert bodies[: len(acknowledged)] == [b"%d" % n for n in acknowledged]
        assert b"refused" not in bodies
        assert client.produce("t", b"again", queue_id=0).queue_offset == len(bodies)
