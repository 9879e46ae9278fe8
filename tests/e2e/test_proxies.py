"""With a proxy in the environment the services reach each other, and commands reach the services, without it."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from messaging_bed import send_to
from real_processes import Running, supervisor
from run_cli import penstock

from penstock.proxies import PROXY_VARIABLES
from services.gateway.v2 import definition_pb2 as v2


def test_no_call_on_this_machine_goes_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, ExitStack() as stack:
        for name in PROXY_VARIABLES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("no_grpc_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        serve = stack.enter_context(
            supervisor(tmp_path / "store", "--gateway-listen", "127.0.0.1:0")
        )
        names = ("writer", "reader", "indexer", "gateway")
        writer, reader, indexer, gateway = (serve.wait_serving(name)[0] for name in names)
        beside = stack.enter_context(
            Running(
                "services.gateway", "--listen", "127.0.0.1:0",
                "--writer-address", writer, "--reader-address", reader,
            )
        )  # fmt: skip
        own_gateway, _ = beside.wait_serving("gateway")
        where = ("--writer", writer, "--reader", reader, "--indexer", indexer, "--timeout", 60)
        for command in (
            ("topic", "create", "orders", "--queues", 1),
            ("pub", "orders", "one", "--key", "k"),
            ("sub", "orders"),
            ("status",),
            ("health", reader),
            ("clients", "--gateway", gateway),
        ):
            done = penstock(*where, *command)
            assert done.exit_code == 0, (command, done.stderr)
        for address in (gateway, own_gateway):
            assert send_to(address, "orders") == v2.OK
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()
