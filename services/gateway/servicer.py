"""The methods of RocketMQ's MessagingService: what a client asks is translated, its answer has a status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from services.gateway.groups import GroupCache
from services.gateway.messages import names
from services.gateway.messages.statuses import OK, CallRefused
from services.gateway.recalls import MessageRecalls
from services.gateway.receives import Receiving
from services.gateway.routes import Routes, SplitEndpoints, checked_endpoints
from services.gateway.sends.message_sends import MessageSends
from services.gateway.sends.sender import ANSWER_SECONDS_MAX
from services.gateway.sessions import Sessions, caller_of, seconds_left
from services.gateway.telemetry import TelemetryStreams
from services.gateway.topics import TopicCache
from services.gateway.transactions import OrphanedTransactions
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.rpc.servicer import Context, brief, raw


def _not_served(what: str) -> Callable[..., Awaitable[Any]]:
    """Return a method that refuses."""

    async def refuse(*_: object) -> Any:
        raise CallRefused(v2.NOT_IMPLEMENTED, f"{what}: not served")

    return refuse


class MessagingServicer:
    """The methods of apache.rocketmq.v2.MessagingService."""

    def __init__(
        self,
        *,
        topics: TopicCache,
        groups: GroupCache,
        routes: Routes,
        sessions: Sessions,
        telemetry: TelemetryStreams,
        sends: MessageSends,
        recalls: MessageRecalls,
        receiving: Receiving,
        transactions: OrphanedTransactions,
        has_accounts: bool,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._routes = routes
        self._sessions = sessions
        self._telemetry = telemetry
        self._sends = sends
        self._recalls = recalls
        self._receiving = receiving
        self._transactions = transactions
        self._has_accounts = has_accounts

    async def query_route(
        self, request: service_pb2.QueryRouteRequest, context: Context
    ) -> service_pb2.QueryRouteResponse:
        """Return every queue of a topic, and where it is served."""
        topic = await self._topics.find(names.topic_of(request.topic))
        endpoints = checked_endpoints(request.endpoints)
        return service_pb2.QueryRouteResponse(
            status=OK,
            message_queues=self._routes.route(
                topic, request.topic, endpoints, self._split_for(context)
            ),
        )

    async def query_assignment(
        self, request: service_pb2.QueryAssignmentRequest, context: Context
    ) -> service_pb2.QueryAssignmentResponse:
        """Return what a push consumer asks for messages; the same for each member of the group."""
        group_name = names.group_of(request.group)
        topic = await self._topics.find(names.topic_of(request.topic))
        group = await self._groups.find(group_name)
        return service_pb2.QueryAssignmentResponse(
            status=OK,
            assignments=self._routes.assignments(
                topic,
                request.topic,
                checked_endpoints(request.endpoints),
                orderly=group.orderly,
                split=self._split_for(context),
            ),
        )

    async def heartbeat(
        self, request: service_pb2.HeartbeatRequest, context: Context
    ) -> service_pb2.HeartbeatResponse:
        """Keep a session alive, or make it again; Go sends some that say nothing.

        With accounts one without a group is not signed, and only keeps what there is.
        """
        caller = caller_of(context)
        if self._has_accounts and not caller.user:
            self._sessions.heard_from(caller.client_id, context.peer())
        elif caller.client_id:
            session = self._sessions.heard(caller.client_id, caller.user)
            session.language = caller.language
            session.group = request.group.name[:255] or session.group
            session.client_type = request.client_type or session.client_type
        return service_pb2.HeartbeatResponse(status=OK)

    async def notify_client_termination(
        self, _request: service_pb2.NotifyClientTerminationRequest, context: Context
    ) -> service_pb2.NotifyClientTerminationResponse:
        """End a session: what the client holds is delivered to others soon, and it is sent nothing more."""
        caller = caller_of(context)
        self._sessions.end(caller.needs_id(), caller.user)
        self._receiving.client_leaves(caller)
        self._telemetry.client_leaves(caller)
        return service_pb2.NotifyClientTerminationResponse(status=OK)

    @raw
    async def telemetry(self, context: Context) -> None:
        """Answer settings for as long as the client lives."""
        await self._telemetry.serve(context)

    @brief
    @raw
    async def send_message(self, request: bytes, context: Context) -> bytes:
        """Store messages of one topic, all or none; as durable as the writer's flush mode says."""
        return await self._sends.send(request, context)

    async def receive_message(
        self, request: service_pb2.ReceiveMessageRequest, context: Context
    ) -> bytes:
        """Lease messages to a consumer, after a wait if there are none."""
        return await self._receiving.receive(request, context)

    @brief
    async def ack_message(
        self, request: service_pb2.AckMessageRequest, _context: Context
    ) -> service_pb2.AckMessageResponse:
        """End leases for good; each entry has its own status."""
        return await self._receiving.acknowledge(request)

    async def forward_message_to_dead_letter_queue(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, _context: Context
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        """Keep a message as a dead letter; it is not delivered again."""
        await self._receiving.dead_letter(request)
        return service_pb2.ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def change_invisible_duration(
        self, request: service_pb2.ChangeInvisibleDurationRequest, _context: Context
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        """Set when a message is delivered again; its handle stays the same, in a refusal too."""
        await self._receiving.change(request)
        return service_pb2.ChangeInvisibleDurationResponse(
            status=OK, receipt_handle=request.receipt_handle
        )

    async def end_transaction(
        self, request: service_pb2.EndTransactionRequest, context: Context
    ) -> service_pb2.EndTransactionResponse:
        """Commit or roll back a transaction; a repeat gets the first answer."""
        await self._transactions.end(request, seconds_left(context, ANSWER_SECONDS_MAX))
        return service_pb2.EndTransactionResponse(status=OK)

    async def recall_message(
        self, request: service_pb2.RecallMessageRequest, _context: Context
    ) -> service_pb2.RecallMessageResponse:
        """Have a delayed message not delivered."""
        return await self._recalls.recall(request)

    sync_lite_subscription = _not_served("lite topics")
    # No client of RocketMQ calls the others.
    update_offset = _not_served("UpdateOffset")
    get_offset = _not_served("GetOffset")
    query_offset = _not_served("QueryOffset")
    pull_message = _not_served("PullMessage")

    def _split_for(self, context: Context) -> SplitEndpoints | None:
        return self._routes.split_for(caller_of(context).language)
