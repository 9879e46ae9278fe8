"""MessagingService put together, and what goes on beside its calls: sessions end, leases are renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from penstock.v1 import gateway_pb2, leases_pb2
from services import logs
from services.config.settings import MessagingSettings
from services.gateway.clients import ClientsServicer
from services.gateway.groups import GroupCache
from services.gateway.handle_calls import LEASES
from services.gateway.messages.sent_messages import Stamp
from services.gateway.messages.statuses import refusal_answer
from services.gateway.metrics import GatewayCollector
from services.gateway.recalls import MessageRecalls
from services.gateway.receives import Receiving
from services.gateway.routes import Routes, SplitEndpoints, endpoints_of
from services.gateway.sends.batch_stream import Batches, BatchStream, HalfBatches
from services.gateway.sends.message_sends import MessageSends
from services.gateway.sends.sender import Sender, WaitingRoom
from services.gateway.servicer import MessagingServicer
from services.gateway.sessions import Sessions
from services.gateway.telemetry import TelemetryStreams
from services.gateway.topics import TopicCache
from services.gateway.transactions import OrphanedTransactions
from services.gateway.v2 import service_pb2
from services.rpc.server import Contract
from services.upstream import CalledService, CheckingWriter, ServiceAddress, Upstream

RENEWALS_A_LEASE: Final = 6  # a lost renewal or two do not end a lease
CLIENT_IDS_MAX: Final = 1_000  # of one call
_TICK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Upstreams:
    """What MessagingService is served with."""

    writer: CheckingWriter
    batches: Batches  # to the same writer, over a connection of their own
    halves: Batches  # of half messages, over another one
    reader: CalledService
    waiting: CalledService  # the same reader, for calls that wait long
    others_with_clients: Sequence[CalledService] = ()

    @classmethod
    def to_writer(
        cls,
        address: ServiceAddress,
        reader: CalledService,
        waiting: CalledService,
        lists_clients: CalledService | None = None,
    ) -> Upstreams:
        """Return the writer over channels, and a reader; with ``lists_clients`` both serve clients, too."""
        writer, halves = Upstream(address), Upstream(address)
        return cls(
            writer=writer,
            batches=BatchStream(address),
            halves=HalfBatches(halves, halves.renew),
            reader=reader,
            waiting=waiting,
            others_with_clients=(writer, lists_clients) if lists_clients else (),
        )

    async def close(self) -> None:
        """End all calls."""
        await self.batches.close()
        await self.halves.close()
        await self.writer.close()
        await self.reader.close()
        await self.waiting.close()


class Messaging:
    """The servicers with what they call; used on the event loop."""

    def __init__(
        self, settings: MessagingSettings, upstreams: Upstreams, draining: asyncio.Event
    ) -> None:
        self._upstreams = upstreams
        self._loop = asyncio.get_running_loop()
        self._log = logs.get_logger()
        self._renewal_seconds = settings.push_lease_ms / 1e3 / RENEWALS_A_LEASE
        self._renew_at = self._loop.time() + self._renewal_seconds
        self._released: list[str] = []
        self._calling: set[asyncio.Task[None]] = set()
        body_bytes_max = int(settings.message_body_max)
        self._sessions = Sessions(
            most=settings.sessions_max,
            timeout_seconds=settings.session_timeout_seconds,
            gone=self._gone,
        )
        groups = GroupCache(upstreams.reader)
        receiving = Receiving(
            upstreams.reader,
            upstreams.waiting,
            self._sessions,
            push_lease_ms=settings.push_lease_ms,
        )
        self._draining = self._loop.create_task(_then(draining, receiving.drain))
        telemetry = TelemetryStreams(
            self._sessions,
            groups,
            draining,
            most=min(settings.sessions_max, settings.concurrent_calls_max // 2),
            body_bytes_max=body_bytes_max,
        )
        self._transactions = OrphanedTransactions(upstreams.writer, telemetry)
        self._ticking = self._loop.create_task(self._tick_on())
        room = WaitingRoom(int(settings.sending_bytes_max))
        self.metrics = GatewayCollector(self._sessions, room)
        topics = TopicCache(upstreams.writer)
        recalls = MessageRecalls(upstreams.writer, settings.broker_name)
        servicer = MessagingServicer(
            topics=topics,
            groups=groups,
            routes=Routes(settings.broker_name, _split_of(settings)),
            sessions=self._sessions,
            telemetry=telemetry,
            sends=MessageSends(
                topics,
                Sender(upstreams.batches, room),
                Sender(upstreams.halves, room),
                recalls,
                Stamp(settings.cluster_name, body_bytes_max),
                request_bytes_max=int(settings.message_bytes_max),
            ),
            recalls=recalls,
            receiving=receiving,
            transactions=self._transactions,
            has_accounts=getattr(settings, "accounts", False),
        )
        clients = ClientsServicer(self._sessions, upstreams.others_with_clients)
        self.clients = Contract(gateway_pb2.DESCRIPTOR.services_by_name["Gateway"], clients)
        self.contracts = [
            Contract(
                service_pb2.DESCRIPTOR.services_by_name["MessagingService"],
                servicer,
                int(settings.message_bytes_max),
                refusal_answer,
            ),
            self.clients,
        ]

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001  leases must go on being renewed
                self._log.error("tick failed", exc_info=error)

    def _tick(self) -> None:
        """End sessions of silent clients, renew the leases of the others, watch their transactions."""
        self._sessions.expire()
        self._transactions.tick()
        if self._loop.time() >= self._renew_at:
            self._renew_at = self._loop.time() + self._renewal_seconds
            self._call("RenewLeases", self._sessions.renewing())

    async def close(self) -> None:
        """End all calls to the writer and the reader."""
        self._draining.cancel()
        self._ticking.cancel()
        await self._transactions.close()
        for task in self._calling:
            task.cancel()
        await asyncio.gather(*self._calling, return_exceptions=True)
        await self._upstreams.close()

    def _gone(self, client_id: str) -> None:
        """Have the messages of a client that has gone delivered to others soon."""
        if not self._released:
            self._loop.call_soon(self._release)
        self._released.append(client_id)

    def _release(self) -> None:
        released, self._released = self._released, []
        self._call("ReleaseLeases", released)

    def _call(self, method: str, client_ids: Sequence[str]) -> None:
        """Have the reader do something with the leases of clients; nobody waits for it."""
        make = getattr(leases_pb2, f"{method}Request")
        for at in range(0, len(client_ids), CLIENT_IDS_MAX):
            request = make(client_ids=client_ids[at : at + CLIENT_IDS_MAX])
            task = self._loop.create_task(self._called(method, request))
            self._calling.add(task)
            task.add_done_callback(self._calling.discard)

    async def _called(self, method: str, request: Any) -> None:
        try:
            await self._upstreams.reader.call(
                LEASES + method, request, timeout_s=max(1.0, self._renewal_seconds)
            )
        except grpc.aio.AioRpcError as error:
            self._log.warning(
                "leases", method=method, code=error.code().name, clients=len(request.client_ids)
            )


def _split_of(settings: MessagingSettings) -> SplitEndpoints | None:
    if not settings.splits_routes:
        return None
    return SplitEndpoints(
        endpoints_of(settings.writer_endpoint), endpoints_of(settings.reader_endpoint)
    )


async def _then(event: asyncio.Event, action: Callable[[], None]) -> None:
    await event.wait()
    action()
