"""The methods of penstock.v1.Gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import grpc

from penstock.v1 import gateway_pb2
from services.gateway.sessions import ClientSession, Sessions
from services.gateway.v2 import definition_pb2 as v2
from services.rpc.peers import host_of_peer
from services.rpc.servicer import Context
from services.upstream import CalledService

LIST_CLIENTS: Final = "/penstock.v1.Gateway/ListClients"
_ANSWER_SECONDS: Final = 1.0


class ClientsServicer:
    """Shows the sessions: its own, and those of other services that serve clients too."""

    def __init__(self, sessions: Sessions, others: Sequence[CalledService] = ()) -> None:
        self._sessions = sessions
        self._others = others
        self._loop = asyncio.get_running_loop()

    async def list_clients(
        self, request: gateway_pb2.ListClientsRequest, _context: Context
    ) -> gateway_pb2.ListClientsResponse:
        """Return the clients of a group, or all; each once, as the service saw it that heard of it last.

        A service that does not answer is left out.
        """
        now = self._loop.time()
        clients = [
            _client(client_id, session, now)
            for client_id, session in self._sessions
            if request.group in ("", session.group)
        ]
        if self._others:
            for answer in await asyncio.gather(*(_listed(each, request) for each in self._others)):
                clients += answer.clients
            clients.sort(key=lambda client: client.silent_ms)
            once = {client.client_id: client for client in reversed(clients)}
            clients = sorted(once.values(), key=lambda client: -client.silent_ms)
        return gateway_pb2.ListClientsResponse(clients=clients)


async def _listed(
    service: CalledService, request: gateway_pb2.ListClientsRequest
) -> gateway_pb2.ListClientsResponse:
    try:
        answer = await service.call(LIST_CLIENTS, request, timeout_s=_ANSWER_SECONDS)
    except grpc.aio.AioRpcError:
        return gateway_pb2.ListClientsResponse()
    return gateway_pb2.ListClientsResponse.FromString(answer)


def _client(client_id: str, session: ClientSession, now: float) -> gateway_pb2.ConnectedClient:
    is_known = session.client_type and session.client_type in v2.ClientType.values()
    return gateway_pb2.ConnectedClient(
        client_id=client_id,
        kind=v2.ClientType.Name(session.client_type).lower() if is_known else "",
        group=session.group,
        topics=session.topics,
        language=session.language,
        version=session.version,
        peer=host_of_peer(session.peer) if session.peer else "",
        silent_ms=int((now - session.heard_at) * 1e3),
        renews_leases=session.renews,
    )
