"""The thread that waits for a call reads its socket: gRPC's own threads would cost each call two wake-ups."""

from pathlib import Path

import pytest
from real_processes import SMALL_STORE, Running

from penstock import Client

CALLS = 300


def wakes_of_grpc_threads(process_id: int) -> int:
    total = 0
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        if (thread / "comm").read_text().startswith("event_engine"):
            status = (thread / "status").read_text()
            total += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return total


@pytest.mark.parametrize(("given", "most"), [({}, CALLS // 3), ({"GRPC_EXPERIMENTS": ""}, None)])
def test_grpc_s_threads_sleep_while_calls_are_made(tmp_path, monkeypatch, given, most):
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)  # this process has set it for itself
    flags = ["--store", str(tmp_path / "store"), "--listen", "127.0.0.1:0", *SMALL_STORE]
    with Running("services.writer", *flags, environment=given) as process:
        address, _ = process.wait_serving("writer")
        with Client(writer=address) as client:
            client.writer_status()
            before = wakes_of_grpc_threads(process.process.pid)
            for _ in range(CALLS):
                client.writer_status()
            wakes = wakes_of_grpc_threads(process.process.pid) - before
    assert wakes > CALLS if most is None else wakes < most
