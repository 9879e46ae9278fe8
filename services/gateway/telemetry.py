"""The stream on which clients say what they are and are told what to do."""

from __future__ import annotations

import asyncio
import itertools
from typing import Final, cast

from google.protobuf.message import DecodeError

from services.accounts.principal import check
from services.gateway.client_settings import consumer_settings, producer_settings
from services.gateway.groups import GroupCache
from services.gateway.messages import names
from services.gateway.messages.statuses import OK, CallRefused
from services.gateway.producer_stream import ProducerStream
from services.gateway.sessions import TOPICS_BYTES_MAX, TOPICS_MAX, Caller, Sessions, caller_of
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.rpc.servicer import Context
from services.rpc.status import InvalidArgument, PermissionDenied
from storage.accounts.rules import Action, Resource

UNREAD_SECONDS: Final = 1.0  # for clients to read that their stream ends


class TelemetryStreams:
    """Serves the streams of all clients; each holds one task that sleeps until its client speaks."""

    def __init__(
        self,
        sessions: Sessions,
        groups: GroupCache,
        draining: asyncio.Event,
        *,
        most: int,
        body_bytes_max: int,
    ) -> None:
        """Serve at most so many streams at once."""
        self._most = most
        self._count = 0
        self._sessions = sessions
        self._groups = groups
        self._body_bytes_max = body_bytes_max
        self._draining = draining
        self._serving: dict[asyncio.Task[None], Context] = {}
        self._drained = asyncio.ensure_future(self._drain())
        self._producers: dict[str, ProducerStream] = {}
        self._told: dict[str, dict[ProducerStream, None]] = {}  # by topic
        self._published: frozenset[str] | None = frozenset()  # None: to be made again

    def published_topics(self) -> frozenset[str]:
        """Return the topics of connected producers: the same object while they are the same."""
        if self._published is None:
            self._published = frozenset(self._told)
        return self._published

    def producers_of(self, topic: str) -> list[ProducerStream]:
        """Return the streams of connected producers that have named a topic."""
        return list(self._told.get(topic, ()))

    async def serve(self, context: Context) -> None:
        """Answer each settings command until the client ends the stream.

        The stream ends with OK when the service stops: RocketMQ's client in Rust reads one that ends with
        another status again and again, without a pause. Raises CallRefused.
        """
        await context.send_initial_metadata(())  # Rust waits for it before it sends anything
        caller = caller_of(context)
        caller.needs_id()
        if self._count >= self._most:
            raise CallRefused(v2.TOO_MANY_REQUESTS, f"{self._most} sessions are open; try later")
        if self._draining.is_set():
            return
        self._count += 1
        stream = ProducerStream(context)
        serving = cast("asyncio.Task[None]", asyncio.current_task())
        self._serving[serving] = context
        try:
            await context.read_each(lambda data: self._answer(caller, stream, data))
        except asyncio.CancelledError:
            if not self._draining.is_set():
                raise  # the client has gone
            serving.uncancel()
        finally:
            del self._serving[serving]
            self._count -= 1
            self.ended(caller.client_id, stream)
            stream.close()

    async def _drain(self) -> None:
        """End all streams once the service stops; those of clients that do not read so without a status."""
        await self._draining.wait()
        contexts = list(self._serving.values())
        for serving in self._serving:
            serving.cancel()
        await asyncio.sleep(UNREAD_SECONDS)
        for context in contexts:
            context.cancel()

    def client_leaves(self, caller: Caller) -> None:
        """Tell a producer that says it goes nothing more; its stream may stay open for as long as its process
        lives.
        """
        stream = self._producers.get(caller.client_id)
        if stream is not None and stream.user == caller.user:
            self.ended(caller.client_id, stream)
            stream.close()

    def ended(self, client_id: str, stream: ProducerStream) -> None:
        """Forget what a stream named, unless the client has another one."""
        if self._producers.get(client_id) is stream:
            del self._producers[client_id]
            self._watch(stream, frozenset())

    def publishes(self, client_id: str, stream: ProducerStream, topics: frozenset[str]) -> None:
        """Note what a producer names, instead of what it named before on this or another stream.

        Raises CallRefused if that one is another user's.
        """
        before = self._producers.get(client_id)
        if before is not None and before.user != stream.user:
            raise CallRefused(v2.FORBIDDEN, "the client id is in use by another user")
        self._producers[client_id] = stream
        self._watch(stream, topics)
        if before is not None and before is not stream:
            self._watch(before, frozenset())

    def _watch(self, stream: ProducerStream, topics: frozenset[str]) -> None:
        """Have a stream be told of topics, instead of those before."""
        before, stream.topics = stream.topics, topics
        for topic in topics - before:
            if topic not in self._told:
                self._told[topic] = {}
                self._published = None
            self._told[topic][stream] = None
        for topic in before - topics:
            del self._told[topic][stream]
            if not self._told[topic]:
                del self._told[topic]
                self._published = None

    async def _answer(self, caller: Caller, stream: ProducerStream, data: bytes) -> None:
        try:
            command = service_pb2.TelemetryCommand.FromString(data)
        except DecodeError:
            raise InvalidArgument("command", "is not a TelemetryCommand") from None
        self._sessions.heard(caller.client_id, caller.user)
        if command.HasField("settings"):
            answer = await self._answered(caller, stream.context, command.settings)
            is_publishing = answer.settings.HasField("publishing")
            if is_publishing and not stream.is_closed:
                topics = frozenset(_topics(command.settings))
                self.publishes(caller.client_id, stream, topics)
            await stream.write(answer.SerializeToString())

    async def _answered(
        self, caller: Caller, context: Context, asked: v2.Settings
    ) -> service_pb2.TelemetryCommand:
        try:
            settings = await self._settings(caller, context, asked)
        except CallRefused as refused:
            return service_pb2.TelemetryCommand(status=refused.status)
        except PermissionDenied as denied:
            status = CallRefused(v2.FORBIDDEN, str(denied)).status
            return service_pb2.TelemetryCommand(status=status)
        return service_pb2.TelemetryCommand(status=OK, settings=settings)

    async def _settings(self, caller: Caller, context: Context, asked: v2.Settings) -> v2.Settings:
        _check_rights(asked)
        session = self._sessions.heard(caller.client_id, caller.user)
        session.language = caller.language
        session.peer = context.peer()
        session.client_type = asked.client_type
        session.version = asked.user_agent.version[:32]
        session.topics = _topics(asked)
        kind = asked.WhichOneof("pub_sub")
        if kind == "publishing":
            return producer_settings(asked, self._body_bytes_max)
        if kind == "subscription":
            session.group = names.group_of(asked.subscription.group)
            return consumer_settings(asked, await self._groups.find(session.group))
        raise CallRefused(
            v2.UNRECOGNIZED_CLIENT_TYPE, "the settings are neither a producer's nor a consumer's"
        )


def _check_rights(settings: v2.Settings) -> None:
    """Raise PermissionDenied unless the client may send to, or consume, what its settings name."""
    for topic in settings.publishing.topics:
        check(Resource.topic(topic.name), Action.PUB)
    if settings.HasField("subscription"):
        check(Resource.group(settings.subscription.group.name), Action.SUB)
        for entry in settings.subscription.subscriptions:
            check(Resource.topic(entry.topic.name), Action.SUB)


def _topics(settings: v2.Settings) -> tuple[str, ...]:
    """Return the topics that a client names, as many as are remembered of it."""
    named = [topic.name for topic in settings.publishing.topics[:TOPICS_MAX]]
    named += [entry.topic.name for entry in settings.subscription.subscriptions[:TOPICS_MAX]]
    sizes = itertools.accumulate(map(len, named))
    return tuple(name for name, size in zip(named, sizes, strict=True) if size <= TOPICS_BYTES_MAX)
