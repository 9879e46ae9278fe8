"""``penstock clients``: RocketMQ's clients that the gateway has heard of lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from cli.failures import CommandFailed, ExitCode, no_answer
from cli.session import Session, check_address, session_of
from penstock.addresses import DEFAULT_GATEWAY, is_loopback

if TYPE_CHECKING:
    from penstock.credentials import Credentials
    from penstock.v1 import gateway_pb2


def clients(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="Consumer group; none: all clients.")] = "",
    gateway: Annotated[
        str,
        typer.Option(
            envvar="PENSTOCK_GATEWAY",
            help="Address of a gateway by itself; none: the reader's, or for a reader on this machine"
            f" {DEFAULT_GATEWAY}.",
        ),
    ] = "",
) -> None:
    """Show RocketMQ's clients that are connected, those silent for longest first."""
    import grpc

    from penstock.errors import PermissionDenied, Unauthenticated, from_rpc_error

    session = session_of(context)
    if gateway:
        check_address("--gateway", gateway)
    address = gateway or session.reader
    credentials = session.credentials(gateway)
    try:
        try:
            answer = _list(address, group, session, credentials)
        except grpc.RpcError as error:
            if gateway or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            if not is_loopback(address):
                raise CommandFailed(
                    f"the reader at {address} has no gateway: give --gateway HOST:PORT",
                    ExitCode.USAGE,
                ) from error
            address = DEFAULT_GATEWAY
            answer = _list(address, group, session, credentials)
    except grpc.RpcError as error:
        refusal = from_rpc_error(error)
        if isinstance(refusal, Unauthenticated | PermissionDenied):
            raise refusal from error
        raise no_answer(error, address, session.tls) from error
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


def _list(
    address: str, group: str, session: Session, credentials: Credentials | None
) -> gateway_pb2.ListClientsResponse:
    from penstock.credentials import signed
    from penstock.v1 import gateway_pb2, gateway_pb2_grpc

    with session.channel(address) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)  # type: ignore[no-untyped-call]  # generated
        list_clients = signed(stub.ListClients, credentials)
        request = gateway_pb2.ListClientsRequest(group=group)
        return cast(
            "gateway_pb2.ListClientsResponse", list_clients(request, timeout=session.timeout_s)
        )
