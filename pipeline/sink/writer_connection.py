"""The store's writer as a Spark process reaches it; errors in words for who set the options.

gRPC is imported by the process that writes and by no earlier one: whoever imports this package does it
where a write begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock import TLS, Client
from penstock.errors import DeadlineExceeded, PenstockError, TopicNotFound, Unavailable
from penstock.retry import RetryPolicy
from pipeline.errors import WriteFailed, WriterUnavailable
from pipeline.sink.staged import run_of

ABORT_TIMEOUT_S = 5.0


class WriterConnection:
    """A client of the writer at ``endpoint``; a context manager that closes it.

    ``unreachable_s`` is how long an address is tried where nobody listens, if not all of the time.
    """

    def __init__(
        self,
        endpoint: str,
        tls: TLS | None,
        *,
        timeout_s: float,
        unreachable_s: float = float("inf"),
    ) -> None:
        self.endpoint = endpoint
        self.client = Client(
            writer=endpoint,
            tls=tls,
            timeout_s=timeout_s,
            retry=RetryPolicy(unreachable_s_max=unreachable_s),
        )

    def __enter__(self) -> WriterConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def queue_count(self, topic: str) -> int:
        """Return how many queues of a topic can be written. Raises WriteFailed."""
        with self._failures():
            try:
                count = self.client.describe_topic(topic).topic.write_queue_count
            except TopicNotFound as error:
                raise WriteFailed(
                    f"topic {topic!r} does not exist at {self.endpoint}; create it first:"
                    f" penstock topic create {topic}"
                ) from error
        if count < 1:
            raise WriteFailed(f"topic {topic!r} has no queue that can be written")
        return count

    def check_writable(self) -> None:
        """Raise WriteFailed unless the writer takes writes."""
        with self._failures():
            status = self.client.writer_status()
        if not status.writable:
            raise WriteFailed(f"the writer at {self.endpoint} is read-only: {status.problem}")

    def is_committed(self, app_id: str, version: int) -> bool:
        """Return whether a staged commit, or a later one of its application, is stored.

        Raises WriteFailed.
        """
        with self._failures():
            applications = self.client.staged_commits()
        return any(each.app_id == app_id and each.last_version >= version for each in applications)

    def commit(
        self, app_id: str, version: int, attempts: list[str], *, one_off: bool, timeout_s: float
    ) -> None:
        """Store what the attempts hold, once; durable on return. Raises WriteFailed."""
        with self._failures():
            staged_commit = self.client.staged_commit(app_id, version, one_off=one_off)
            staged_commit.commit(attempts, timeout_s=timeout_s)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            raise self.failed(error) from error

    def abort(self, run: str) -> None:
        """Remove a run's stages as far as can be done: the writer removes the others in time."""
        with suppress(Exception):
            for app in self.client.staged_commits(timeout_s=ABORT_TIMEOUT_S):
                for each in app.open:
                    mine = [stage.attempt for stage in each.stages if run_of(stage.attempt) == run]
                    if mine and not each.decided:
                        staged_commit = self.client.staged_commit(app.app_id, each.version)
                        staged_commit.abort(mine, timeout_s=ABORT_TIMEOUT_S)

    def failed(self, error: PenstockError) -> WriteFailed:
        """Return what an error of the client is to be raised as."""
        if isinstance(error, Unavailable | DeadlineExceeded):
            return WriterUnavailable(
                f"option 'endpoint': no writer answers at {self.endpoint} ({error}); is penstock serve,"
                " or the writer, running there, and is this not the reader's address?"
            )
        return WriteFailed(f"the writer at {self.endpoint} refused: {error}")
