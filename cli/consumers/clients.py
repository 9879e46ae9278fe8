"""``penstock clients``: RocketMQ's clients that the gateway has heard of lately."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.failures import CommandFailed, ExitCode, nobody_answers
from cli.session import check_address, session_of
from penstock.addresses import DEFAULT_GATEWAY, channel_options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("clients", rich_help_panel="Services")(clients)


def clients(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="Consumer group; none: all clients.")] = "",
    gateway: Annotated[
        str, typer.Option(envvar="PENSTOCK_GATEWAY", help="Address of the gateway.")
    ] = DEFAULT_GATEWAY,
) -> None:
    """Show RocketMQ's clients that are connected, those silent for longest first."""
    check_address("--gateway", gateway)
    import grpc

    from penstock.v1 import gateway_pb2, gateway_pb2_grpc

    session = session_of(context)
    with grpc.insecure_channel(gateway, channel_options(gateway)) as channel:
        try:
            stub = gateway_pb2_grpc.GatewayStub(channel)  # type: ignore[no-untyped-call]  # generated
            answer = stub.ListClients(
                gateway_pb2.ListClientsRequest(group=group), timeout=session.timeout_s
            )
        except grpc.RpcError as error:
            raise CommandFailed(nobody_answers(gateway), ExitCode.UNREACHABLE) from error
    rows = [
        {
            "client": each.client_id,
            "kind": each.kind.replace("_", " "),
            "group": each.group,
            "topics": list(each.topics) if session.as_json else " ".join(each.topics),
            "language": each.language.lower(),
            "version": each.version,
            "peer": each.peer,
            "silent_ms": each.silent_ms,
        }
        for each in answer.clients
    ]
    session.show(rows, empty="no clients")
