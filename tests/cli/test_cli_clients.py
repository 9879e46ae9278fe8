"""Where ``penstock clients`` looks for a gateway."""

from __future__ import annotations

import grpc
import pytest
from run_cli import penstock

from cli.consumers import clients
from cli.failures import ExitCode
from penstock.addresses import DEFAULT_GATEWAY
from penstock.v1 import gateway_pb2


class NoGateway(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("reader", "asked", "code"),
    [
        ("127.0.0.1:5802", ["127.0.0.1:5802", DEFAULT_GATEWAY], ExitCode.DONE),
        ("192.0.2.1:5802", ["192.0.2.1:5802"], ExitCode.USAGE),
    ],
)
def test_only_a_reader_of_this_machine_has_its_gateway_looked_for_here(
    monkeypatch: pytest.MonkeyPatch, reader: str, asked: list[str], code: ExitCode
) -> None:
    addresses = []

    def answered(address: str, *_: object) -> gateway_pb2.ListClientsResponse:
        addresses.append(address)
        if address == reader:
            raise NoGateway
        return gateway_pb2.ListClientsResponse()

    monkeypatch.setattr(clients, "_list", answered)
    done = penstock("--reader", reader, "clients")

    assert (addresses, done.exit_code) == (asked, code)
    if code is ExitCode.USAGE:
        assert (
            done.stderr
            == f"penstock: the reader at {reader} has no gateway: give --gateway HOST:PORT\n"
        )
