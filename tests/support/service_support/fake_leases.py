"""A reader's Leases and Groups that remember what they were asked and answer what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.v1 import groups_pb2, leases_pb2
from services.reader.acknowledge_stream import AcknowledgeStream
from services.rpc.server import Contract, RpcServer
from services.rpc.servicer import raw
from services.rpc.status import InvalidArgument
from storage.errors import StoreError


class FakeLeases:
    """The methods of penstock.v1.Leases and, of Groups, DescribeGroup."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: dict[str, Any] = {}  # by method
        self.errors: dict[str, StoreError] = {}
        self.group_settings: dict[str, groups_pb2.GroupSettings] = {}

    def of(self, kind: type) -> list[Any]:
        return [request for request in self.asked if isinstance(request, kind)]

    def _answer(self, method: str, request: Any, default: Any) -> Any:
        self.asked.append(request)
        if method in self.errors:
            raise self.errors[method]
        answer = self.answers.get(method, default)
        return answer(request) if callable(answer) else answer

    async def receive(self, request: leases_pb2.ReceiveRequest, _context: Any) -> Any:
        return self._answer("receive", request, leases_pb2.ReceiveResponse())

    async def acknowledge(self, request: leases_pb2.AcknowledgeRequest, _context: Any) -> Any:
        return self._answer("acknowledge", request, leases_pb2.AcknowledgeResponse())

    @raw
    async def acknowledge_stream(self, context: Any) -> None:
        await AcknowledgeStream(self.acknowledge, context, asyncio.Event()).serve()

    async def change_leases(self, request: leases_pb2.ChangeLeasesRequest, _context: Any) -> Any:
        return self._answer("change_leases", request, leases_pb2.ChangeLeasesResponse())

    async def dead_letter(self, request: leases_pb2.DeadLetterRequest, _context: Any) -> Any:
        return self._answer("dead_letter", request, leases_pb2.DeadLetterResponse())

    async def renew_leases(self, request: leases_pb2.RenewLeasesRequest, _context: Any) -> Any:
        return self._answer("renew_leases", request, leases_pb2.RenewLeasesResponse())

    async def release_leases(self, request: leases_pb2.ReleaseLeasesRequest, _context: Any) -> Any:
        return self._answer("release_leases", request, leases_pb2.ReleaseLeasesResponse())

    async def describe_group(
        self, request: groups_pb2.DescribeGroupRequest, _context: Any
    ) -> groups_pb2.DescribeGroupResponse:
        settings = self.group_settings.get(request.group, groups_pb2.GroupSettings())
        return groups_pb2.DescribeGroupResponse(settings=settings)

    def __getattr__(self, name: str) -> Any:
        async def refuse(_request: Any, _context: Any) -> Any:
            raise InvalidArgument("method", f"{name} is not faked")

        return refuse


async def serve_fake_reader(
    leases: FakeLeases, settings: Any, stop: asyncio.Event, ready: Callable[[str], None]
) -> None:
    draining = asyncio.Event()
    contracts = [
        Contract(leases_pb2.DESCRIPTOR.services_by_name["Leases"], leases),
        Contract(groups_pb2.DESCRIPTOR.services_by_name["Groups"], leases),
    ]
    server = RpcServer(contracts, settings, draining)
    address = await server.start(settings.listen)
    ready(address)
    await stop.wait()
    await server.drain()
