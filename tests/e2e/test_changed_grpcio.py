"""A service on a grpcio whose private core has changed."""

from __future__ import annotations

from pathlib import Path

from real_processes import SMALL_STORE, Running

from penstock import Client


def test_it_serves_on_grpc_aio_and_says_so_once(tmp_path: Path) -> None:
    support = Path(__file__).parents[1] / "support" / "service_support"
    writer = Running(
        "writer_on_changed_grpc", "--store", str(tmp_path / "store"), "--listen", "127.0.0.1:0", *SMALL_STORE,
        environment={"PYTHONPATH": str(support)},
    )  # fmt: skip
    with writer:
        address, _ = writer.wait_serving("writer")
        with Client(writer=address) as client:
            client.create_topic("orders", queues=1)
            assert client.produce("orders", b"1").queue_offset == 0
        assert writer.stop() == 0
    [said] = [line for line in writer.output if "SendStatusFromServerOperation" in line]
    assert "calls are taken by grpc.aio" in said
    assert '"level": "warning"' in said
