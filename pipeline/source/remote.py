"""A reader service as a read sees it: which queues there are, and the records of ranges of them.

Reads go from offset to offset: after a broken call the next one continues where that one stopped. Nothing is
imported or connected before the first call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from pipeline.errors import PipelineError, ReaderUnavailable
from pipeline.source.options import ReadOptions
from pipeline.source.pieces import RemotePiece
from storage.clock import SystemClock
from storage.kernels.columns import ByteArray
from storage.view.queues.record_queues import QueueKey

if TYPE_CHECKING:
    from penstock import Client
    from penstock.calls.call import Call
    from penstock.errors import PenstockError
    from penstock.values import Damage, PullResult

FIRST_PATIENCE_S: Final = 3.0  # with an endpoint that has never answered: it may be a wrong one
CALL_TIMEOUT_S: Final = 30.0
STREAM_TIMEOUT_S: Final = 120.0
PAUSE_S: Final = 0.2  # before a stream that failed is opened again
ANSWER_BYTES: Final = 4 << 20
T = TypeVar("T")


class RemoteQueue(NamedTuple):
    """One queue: offsets ``[begin, end)``, where their records lie in the log, about how many bytes."""

    topic: str
    queue_id: int
    begin: int
    end: int
    commit_begin: int | None
    commit_end: int | None
    approximate_bytes: int
    incarnation: int | None

    @property
    def mean_size(self) -> float:
        """About how many bytes a record has, 1 at least."""
        return max(1.0, self.approximate_bytes / max(1, self.end - self.begin))

    def pieces(self, address: str, begin: int, end: int, piece_bytes: int) -> Iterator[RemotePiece]:
        """Cut offsets ``[begin, end)`` into pieces of about ``piece_bytes``."""
        step = max(1, int(piece_bytes / self.mean_size))
        for first in range(begin, end, step):
            last = min(first + step, end)
            cost = int((last - first) * self.mean_size)
            yield RemotePiece(address, self.topic, self.queue_id, first, last, cost)


@dataclass(frozen=True)
class Listing:
    """What a reader has. ``store_id`` is empty for a store that no writer of ours has named."""

    queues: Mapping[QueueKey, RemoteQueue]
    topics: frozenset[str]
    store_id: str
    bounds: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pulled:
    """Queue offsets ``[begin, end)``: whole records back to back, and those that are damaged.

    ``lost`` says why there may be fewer than that, empty where there are not.
    """

    begin: int
    end: int
    records: ByteArray
    count: int
    damaged: tuple[Damage, ...] = ()
    lost: str = ""


NO_RECORDS: Final[ByteArray] = np.empty(0, np.uint8)


class Endpoint:
    """The reader service that the options of a read name.

    A reader that has gone is waited for as long as ``endpointTimeoutMs`` says, ``FIRST_PATIENCE_S`` if it
    has never answered and is not ``known`` to exist. Methods raise ReaderUnavailable after that.
    """

    def __init__(self, options: ReadOptions, *, known: bool = False) -> None:
        assert options.endpoint is not None
        self.address = options.endpoint
        self._tls = options.tls
        self._patience_s = options.endpoint_timeout_ms / 1e3
        self._known = known
        self._client: Client | None = None

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- questions

    def list_queues(self, topics: Sequence[str] = ()) -> Listing:
        """Return every queue, or those of some topics, with everything acknowledged so far."""
        from penstock import wire
        from penstock.calls.call import Call
        from penstock.v1 import reader_pb2

        request = reader_pb2.ListQueuesRequest(topics=topics, estimate_bytes=True)
        call: Call[Any] = Call(wire.LIST_QUEUES, request, lambda answer: answer)
        answer = self._ask(call)
        return Listing(
            {
                (queue.topic, queue.queue_id): RemoteQueue(
                    queue.topic,
                    queue.queue_id,
                    queue.min_offset,
                    queue.max_offset,
                    queue.min_commit_offset if queue.HasField("min_commit_offset") else None,
                    queue.end_commit_offset if queue.HasField("end_commit_offset") else None,
                    queue.approximate_bytes,
                    queue.topic_incarnation if queue.HasField("topic_incarnation") else None,
                )
                for queue in answer.queues
            },
            frozenset(answer.topics),
            answer.store_id,
            (answer.min_commit_offset, answer.visible_offset),
        )

    def bounds(self) -> tuple[int, int]:
        """Return from which to which commit offset the reader serves: the cheapest of questions."""
        from penstock.calls import status

        found = self._ask(status.reader_status())
        return found.min_commit_offset, found.visible_offset

    def offset_at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int | None:
        """Return the first queue offset stored at or after a time, None if all are older."""
        from penstock.calls import offsets

        found = self._ask(offsets.offset(topic, queue_id, timestamp_ms))
        return found.queue_offset if found.queue_offset < found.max_offset else None

    def stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when a record was stored, in Unix milliseconds; 0 if it cannot be read."""
        from penstock.calls import records

        call = records.pull(topic, queue_id, queue_offset, max_messages=1)
        return next((each.store_timestamp_ms for each in self._ask(call).records), 0)

    # ---- records

    def pull(
        self, topic: str, queue_id: int, begin: int, end: int, tags: Sequence[str] = ()
    ) -> Iterator[Pulled]:
        """Yield queue offsets ``[begin, end)``, each once, in order, whatever happens on the way.

        Of what the reader does not have, or has no more, a ``Pulled`` without records is yielded.
        """
        import grpc

        from penstock.calls.records import pull_stream
        from penstock.errors import NotFound

        at, clock = begin, SystemClock()
        until: float | None = None  # patience ends; None while answers bring the read on
        while at < end:
            failure: PenstockError | None = None
            call = pull_stream(
                topic, queue_id, at, end_offset=end, max_bytes=ANSWER_BYTES,
                tag=" || ".join(tags), follow=False,
            )  # fmt: skip
            client = self._connected
            stream = client.channels.stub(call.method)(call.request, timeout=STREAM_TIMEOUT_S)
            try:
                for answer in stream:
                    pulled = _pulled(at, end, call.interpret(answer))
                    if pulled is None:
                        break
                    until = None
                    yield pulled
                    at = pulled.end
            except grpc.RpcError as error:
                failure = client.error_of(call, error)
                if isinstance(failure, NotFound):
                    yield Pulled(at, end, NO_RECORDS, 0, lost="the topic has been deleted")
                    return
                if not isinstance(failure, _passing()):
                    raise self.failed(failure) from None
            finally:
                stream.cancel()
            if at == end:
                return
            now = clock.monotonic()
            until = now + self.patience_s if until is None else until
            if now >= until and failure is not None:
                raise self.failed(failure)
            if now >= until:
                lost = f"the queue ends before offset {end}"
                yield Pulled(at, end, NO_RECORDS, 0, lost=lost)
                return
            asked_s = failure.retry_delay_ms / 1e3 if failure is not None else 0.0
            time.sleep(min(until - now, max(asked_s, PAUSE_S)))

    # ---- calls

    @property
    def _connected(self) -> Client:
        if self._client is None:
            from penstock import Client

            self._client = Client(reader=self.address, tls=self._tls)
        return self._client

    def _ask(self, call: Call[T]) -> T:
        from penstock.errors import PenstockError
        from penstock.retry import RetryPolicy

        client = self._connected
        client.retry = RetryPolicy(first_delay_ms=50, unreachable_s_max=self.patience_s)
        try:
            answer = client.run(replace(call, timeout_s=CALL_TIMEOUT_S + self.patience_s))
        except PenstockError as error:
            raise self.failed(error) from None
        self._known = True
        return answer

    @property
    def patience_s(self) -> float:
        """How long a reader that does not answer is waited for."""
        return self._patience_s if self._known else min(FIRST_PATIENCE_S, self._patience_s)

    def failed(self, error: PenstockError) -> PipelineError:
        """Return what an error of the client is to be raised as."""
        from penstock.errors import Unimplemented

        if isinstance(error, Unimplemented):
            return ReaderUnavailable(
                f"option 'endpoint': what serves on {self.address} is not a reader service, or an older"
                f" one ({error})"
            )
        if isinstance(error, _passing()):
            return ReaderUnavailable(
                f"option 'endpoint': no reader service answers at {self.address} ({error}); is it running,"
                " and is this its address?"
            )
        return PipelineError(f"the reader service at {self.address} refused a read: {error}")


def _passing() -> tuple[type[PenstockError], ...]:
    from penstock.errors import DeadlineExceeded, ResourceExhausted, Unavailable

    return DeadlineExceeded, ResourceExhausted, Unavailable


def _pulled(at: int, end: int, result: PullResult) -> Pulled | None:
    """Return what one answer of a stream gives from offset ``at`` on, None if nothing."""
    from penstock.values import PullStatus

    upto = min(result.next_offset, end)
    if upto <= at:
        return None
    if result.status in (
        PullStatus.MESSAGE_WAS_REMOVING, PullStatus.OFFSET_FOUND_NULL, PullStatus.OFFSET_TOO_SMALL,
    ):  # fmt: skip
        return Pulled(at, upto, NO_RECORDS, 0, lost="their records have been removed")
    if result.status not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE):
        return None
    records = result.records
    return Pulled(at, upto, np.frombuffer(records.raw, np.uint8), len(records), result.damaged)
