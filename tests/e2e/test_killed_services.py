"""Three real processes under a supervisor: each is killed under load and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_ledger import Ledger
from messaging_bed import send_to
from real_processes import Running, supervisor, until
from service_checks import require_kept
from service_load import TOPIC, ServiceLoad
from steps_to_try import cases_to_try

from penstock import Client
from services.gateway.v2 import definition_pb2 as v2

SERVICES = ("writer", "reader", "indexer")
SENT = b"through the gateway"


@pytest.fixture(params=cases_to_try(["sync", "async"]))
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    flags = ("--flush-mode", request.param, "--gateway-listen", "127.0.0.1:0")
    with supervisor(tmp_path / "store", *flags) as process:
        yield process


def test_each_process_is_killed_in_turn_and_nothing_acknowledged_is_lost(
    running: Running, tmp_path: Path
) -> None:
    """Each serves again at its address; the gateway is a port of the reader."""
    found = {name: running.wait_serving(name) for name in SERVICES}
    addresses = {name: address for name, (address, _) in found.items()}
    gateway, process_id = running.wait_serving("gateway")
    assert (process_id, gateway != addresses["reader"]) == (found["reader"][1], True)
    load = ServiceLoad(addresses, Ledger()).start()
    try:
        load.goes_on()
        for name in ("reader", "indexer"):
            os.kill(found[name][1], signal.SIGKILL)
            load.goes_on()
            assert running.wait_serving(name, 2)[0] == addresses[name]
            load.goes_on()
            refused = [work for work, _ in load.codes if work.startswith("produce")]
            assert not refused, f"the writer suffered from the death of the {name}"
        assert running.wait_serving("gateway", 2)[0] == gateway
        load.ledger.in_flight.add(SENT)
        assert send_to(gateway, TOPIC, SENT) == v2.OK

        os.kill(found["writer"][1], signal.SIGKILL)
        with Client(**addresses) as client:
            assert next(client.consume(TOPIC, queues=[0], follow=False)).queue_offset == 0
            assert client.indexer_status().indexed_offset > 0
        assert running.wait_serving("writer", 2)[0] == addresses["writer"]
        load.goes_on()
        load.client.wait_indexed(load.client.writer_status().appended_offset, timeout_s=60)
    finally:
        load.stop()
    assert not load.problems
    assert running.stop() == 0
    require_kept(tmp_path / "store", load.ledger)


def test_a_stop_signal_drains_all_three_and_leaves_a_clean_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with supervisor(store) as process:
        address, _ = process.wait_serving("writer")
        pids = [process.wait_serving(name)[1] for name in SERVICES]
        assert (store / "abort").exists()
        with Client(writer=address) as client:
            client.create_topic("t", queues=1)
            client.produce("t", b"x")
        assert process.stop(signal.SIGINT) == 0, process.text()
    assert not (store / "abort").exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_services_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with supervisor(tmp_path / "store") as process:
        pids = [process.wait_serving(name)[1] for name in SERVICES]
        process.process.kill()
        process.process.wait(30)

        until(lambda: all(has_ended(pid) for pid in pids), 60)


def has_ended(pid: int) -> bool:
    """Also of one that has not been waited for: in a container that may be for ever."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"
