"""The methods of penstock.v1.Leases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

from penstock.v1 import leases_pb2
from services import wire
from services.accounts.principal import check
from services.arrivals import Arrivals
from services.config.settings import ReaderSettings
from services.reader.calls_in_turn import CallsInTurn
from services.reader.catch_up import CatchUp, wait_until
from services.reader.dead_letters import DeadLetterCalls
from services.reader.group_servicer import GroupServicer
from services.reader.leases import ReaderLeases
from services.reader.message_tracks import MessageTracks
from services.reader.receives import LineKey, Receives
from services.reader.traffic import Traffic
from services.rpc import status
from services.rpc.servicer import Context, Draining, raw
from services.rpc.status import InvalidArgument
from services.upstream import ServiceAddress
from storage.accounts.rules import Action, Resource
from storage.errors import StoreError
from storage.format.receipt_handle import HANDLE_SIZE
from storage.leases.upkeep import LeaseUpkeep
from storage.leases.values import ReceivedBatch, ReceiveQuestion, Refusal
from storage.reader import StoreReader
from storage.view.filters.sql_filter import LONG, SqlFilter, sql_filter
from storage.view.queues.tag_filter import TagFilter

MESSAGES_DEFAULT: Final = 32
MESSAGES_MAX: Final = 1_024
BYTES_DEFAULT: Final = 1 << 20
LEASE_MS_MAX: Final = 12 * 3_600_000
HANDLES_MAX: Final = 4_096
CLIENTS_MAX: Final = 4_096
CLIENT_ID_MAX: Final = 512  # a gateway adds to a client's own, which has up to 255
ATTEMPT_ID_MAX: Final = 255
_TURNS_TO_CANCEL: Final = 3  # of the loop, until a cancellation that has come is raised in a call
_EMPTY: Final = leases_pb2.ReceiveResponse().SerializeToString()


class LeaseServicer:
    """Each request is checked on the event loop; the leases answer in their own thread, in turn.

    ``groups`` has the methods of penstock.v1.Groups.
    """

    def __init__(
        self,
        reader: StoreReader,
        settings: ReaderSettings,
        writer: ServiceAddress,
        arrivals: Arrivals,
        catch_up: CatchUp,
        reads: Executor,
        draining: asyncio.Event,
        traffic: Traffic,
    ) -> None:
        leases = self.leases = ReaderLeases(
            reader, config=settings.lease_config(), auto_create_groups=settings.auto_create_groups
        )
        self._upkeep = LeaseUpkeep(leases)
        self._calls = CallsInTurn(
            "leasing",
            always_in_thread=settings.lease_sync_interval_ms == 0,  # each call waits for the disk
            may_wait=lambda: leases.may_wait,
        )
        self._dead_letters = DeadLetterCalls(writer, leases, self._calls)
        self._receives = Receives(leases, self._calls, arrivals, self._dead_letters.send)
        self._tracks = MessageTracks(reader, leases)
        self.groups = GroupServicer(reader, leases, catch_up, self._receives.wake, reads)
        self._catch_up = catch_up
        self._reads = reads
        self._draining = draining
        self._traffic = traffic
        self._bytes_max = settings.pull_bytes_max
        self._wait_ms_max = settings.wait_ms_max
        self._loop = asyncio.get_running_loop()
        self._reading_filter = asyncio.Lock()
        leases.add_listener(self._due_earlier)
        self._upkeep.start()

    @property
    def waiting_count(self) -> int:
        """How many receives wait; from any thread."""
        return self._receives.waiting_count

    def _due_earlier(self, group: str, topic: str) -> None:
        self._loop.call_soon_threadsafe(self._receives.wake, group, topic)

    def end_waits(self) -> None:
        """Answer all receives that wait."""
        self._receives.close()

    async def close(self) -> None:
        """Save groups' offsets and leases, after what is under way."""
        self._receives.close()
        await self._dead_letters.close()
        await asyncio.to_thread(self._calls.close)
        await asyncio.to_thread(self._upkeep.stop)
        await asyncio.to_thread(self.leases.close)

    async def receive(self, request: leases_pb2.ReceiveRequest, context: Context) -> bytes:
        """Lease messages of a topic, waiting for the first one if asked to."""
        key, question = LineKey(request.group, request.topic), await self._question(request)
        pending = self._catch_up.pending()
        until = wait_until(context, min(max(request.wait_ms, 0), self._wait_ms_max) / 1e3)
        if self.leases.begins_at_latest(key.group, key.topic):
            await self._catch_up.everything_visible(context)
        moment = self._receives.moment
        batch: ReceivedBatch | None = None
        if until <= self._loop.time() or not self._receives.has_nothing(key, question):
            batch = await self._receives.at_once(key, question)
        if batch is None or not _says_anything(batch):
            left = until - self._loop.time()
            if left > 0:
                if batch is not None and batch.has_more:
                    moment = 0
                batch = await self._receives.wait(key, question, left, moment)
            elif pending:
                await self._catch_up.visible(pending, context)
                batch = await self._receives.at_once(key, question)
        if batch is None:
            return _EMPTY
        answer = received(batch)
        if batch.record_count:
            self._traffic.add(key.topic, key.group, batch.record_count, len(answer))
        if batch.record_count and question.client_id and context.ends_late:
            await self._check_caller(key, batch, context)
        return answer

    async def _check_caller(self, key: LineKey, batch: ReceivedBatch, context: Context) -> None:
        """Give back what nobody waits for any more: its owner would renew it, and knows nothing of it.

        Other leases end by themselves. What is cancelled after this is not seen: gRPC does not tell it. A caller of
        this process has the answer, and gives back itself.
        """
        try:
            for _ in range(_TURNS_TO_CANCEL):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._receives.give_back(key, batch)
            raise
        if context.time_remaining() == 0:
            self._receives.give_back(key, batch)

    async def acknowledge(
        self, request: leases_pb2.AcknowledgeRequest, _context: Context
    ) -> leases_pb2.AcknowledgeResponse:
        """End leases: the messages are done. It survives the process on return."""
        _check_handles(request)
        refused = await self._calls.run(
            self.leases.acknowledge, request.group, request.topic, request.receipt_handles
        )
        return leases_pb2.AcknowledgeResponse(refused=map(refused_handle, refused))

    @raw
    async def acknowledge_stream(self, context: Context) -> None:
        """End leases as each request says, one after the other, for as long as the caller goes on."""
        answering = asyncio.Lock()

        async def take(frame: bytes) -> None:
            async with answering:
                await context.write(await self._acknowledged(frame, context))

        reading = asyncio.ensure_future(context.read_each(take))
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait({reading, draining}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                return
            async with answering:  # what is being made is answered
                raise Draining
        finally:
            reading.cancel()
            draining.cancel()

    async def _acknowledged(self, frame: bytes, context: Context) -> bytes:
        request = leases_pb2.AcknowledgeRequest.FromString(frame)
        try:
            check(Resource.topic(request.topic), Action.SUB)
            check(Resource.group(request.group), Action.SUB)
            done = await self.acknowledge(request, context)
            answer = leases_pb2.AcknowledgeStreamResponse(done=done)
        except (StoreError, OSError) as error:
            refusal = status.refusal_of_frame(error, context.peer())
            if not isinstance(refusal, StoreError):
                raise
            answer = leases_pb2.AcknowledgeStreamResponse(failure=wire.failure_of(refusal))
        return answer.SerializeToString()

    async def change_leases(
        self, request: leases_pb2.ChangeLeasesRequest, _context: Context
    ) -> leases_pb2.ChangeLeasesResponse:
        """Set how long leases last from now on, or give messages back."""
        _check_handles(request)
        duration_ms = request.duration_ms if request.HasField("duration_ms") else None
        if not 0 <= request.duration_ms <= LEASE_MS_MAX:
            raise InvalidArgument(
                "duration_ms", f"must lie between 0 and {LEASE_MS_MAX}, not {request.duration_ms}"
            )
        refused, end_ms = await self._calls.run(
            self.leases.change_or_give_back, request.group, request.topic,
            request.receipt_handles, duration_ms,
        )  # fmt: skip
        return leases_pb2.ChangeLeasesResponse(
            refused=map(refused_handle, refused), lease_end_ms=end_ms
        )

    async def dead_letter(
        self, request: leases_pb2.DeadLetterRequest, _context: Context
    ) -> leases_pb2.DeadLetterResponse:
        """Store messages as dead letters, and acknowledge them."""
        _check_handles(request)
        dead, refused = await self._calls.run(
            self.leases.dead_letter, request.group, request.topic, request.receipt_handles
        )
        if dead:
            await self._dead_letters.store(request.group, request.topic, dead)
        return leases_pb2.DeadLetterResponse(refused=map(refused_handle, refused))

    async def renew_leases(
        self, request: leases_pb2.RenewLeasesRequest, _context: Context
    ) -> leases_pb2.RenewLeasesResponse:
        """Extend all leases that clients took with auto_renew."""
        _check_clients(request.client_ids)
        count = await self._calls.run(self.leases.renew, list(request.client_ids))
        return leases_pb2.RenewLeasesResponse(renewed_count=count)

    async def release_leases(
        self, request: leases_pb2.ReleaseLeasesRequest, _context: Context
    ) -> leases_pb2.ReleaseLeasesResponse:
        """Have the messages of clients that have gone handed out again, a second later."""
        _check_clients(request.client_ids)
        count = await self._calls.run(self.leases.release, list(request.client_ids), request.group)
        return leases_pb2.ReleaseLeasesResponse(released_count=count)

    async def _question(self, request: leases_pb2.ReceiveRequest) -> ReceiveQuestion:
        for name in ("max_messages", "max_bytes"):
            value = getattr(request, name)
            if value < 0:
                raise InvalidArgument(name, f"must not be negative, and is {value}")
        if not 0 <= request.lease_ms <= LEASE_MS_MAX:
            raise InvalidArgument(
                "lease_ms", f"must lie between 0 and {LEASE_MS_MAX}, not {request.lease_ms}"
            )
        if request.auto_renew and not request.client_id:
            raise InvalidArgument("client_id", "is needed with auto_renew")
        _check_length("client_id", request.client_id, CLIENT_ID_MAX)
        _check_length("attempt_id", request.attempt_id, ATTEMPT_ID_MAX)
        if request.sql_expression and request.tag_expression not in ("", "*"):
            raise InvalidArgument("sql_expression", "cannot be given together with tag_expression")
        if request.tag_expression not in ("", "*"):
            TagFilter(request.tag_expression)  # a wrong one is refused before anything is leased
        return ReceiveQuestion(
            max_messages=min(request.max_messages or MESSAGES_DEFAULT, MESSAGES_MAX),
            max_bytes=min(request.max_bytes or BYTES_DEFAULT, self._bytes_max),
            lease_ms=request.lease_ms,
            tag_expression=request.tag_expression,
            predicate=await self._predicate(request.sql_expression),
            client_id=request.client_id if request.auto_renew else "",
            attempt_id=request.attempt_id,
            queue_ids=tuple(request.queue_ids),
        )

    async def _predicate(self, expression: str) -> SqlFilter | None:
        """Return the filter of an expression; long ones are read in a thread, one at a time."""
        if not expression:
            return None
        if len(expression) <= LONG:
            return sql_filter(expression)
        async with self._reading_filter:
            return await asyncio.to_thread(sql_filter, expression)

    async def get_lease_status(
        self, _request: leases_pb2.GetLeaseStatusRequest, _context: Context
    ) -> leases_pb2.LeaseStatus:
        """Return what is handed out and not done, by group, and how the journal is."""
        counts = await asyncio.to_thread(self.leases.group_counts)
        return leases_pb2.LeaseStatus(
            journal_bytes=self.leases.journal_bytes,
            problem=self.leases.problem,
            groups=[
                leases_pb2.GroupLeases(group=group, leased=leased, waiting=waiting)
                for group, leased, waiting in counts
            ],
        )

    async def track_message(
        self, request: leases_pb2.TrackMessageRequest, context: Context
    ) -> leases_pb2.TrackMessageResponse:
        """Return what each group that reads a queue did with one message of it."""
        await self._catch_up.everything_visible(context)
        is_over = threading.Event()
        try:
            return await self._loop.run_in_executor(
                self._reads, self._tracks.of, request, lambda: not is_over.is_set()
            )
        finally:
            is_over.set()


def received(batch: ReceivedBatch) -> bytes:
    """Return a serialized ReceiveResponse, copied once."""
    head = leases_pb2.ReceiveResponse(
        record_count=batch.record_count,
        attempts=batch.attempts.tolist(),
        receipt_handles=batch.receipt_handles,
        lease_end_ms=batch.lease_end_ms if batch.record_count else 0,
        damaged=map(wire.damaged_record, batch.damaged),
    )
    return b"".join(wire.with_records(head, batch.slices))


def refused_handle(refusal: Refusal) -> leases_pb2.RefusedHandle:
    """Return which handle is refused, and why."""
    return leases_pb2.RefusedHandle(index=refusal.handle_index, problem=refusal.problem.name)


def _says_anything(batch: ReceivedBatch) -> bool:
    return bool(batch.record_count or batch.damaged)


def _check_handles(
    request: (
        leases_pb2.AcknowledgeRequest
        | leases_pb2.ChangeLeasesRequest
        | leases_pb2.DeadLetterRequest
    ),
) -> None:
    size = len(request.receipt_handles)
    if size == 0 or size % HANDLE_SIZE:
        raise InvalidArgument(
            "receipt_handles", f"{size} bytes are not handles of {HANDLE_SIZE} bytes each"
        )
    if size > HANDLES_MAX * HANDLE_SIZE:
        raise InvalidArgument("receipt_handles", f"are too many; send at most {HANDLES_MAX}")


def _check_clients(client_ids: Sequence[str]) -> None:
    if len(client_ids) > CLIENTS_MAX:
        raise InvalidArgument("client_ids", f"are too many; send at most {CLIENTS_MAX}")
    for client_id in client_ids:
        _check_length("client_ids", client_id, CLIENT_ID_MAX)


def _check_length(name: str, value: str, most: int) -> None:
    if len(value) > most:
        raise InvalidArgument(name, f"has more than {most} characters")
