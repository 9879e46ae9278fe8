"""The store's writer as a Spark process reaches it; errors in words for who set the options."""

from __future__ import annotations

from pipeline.errors import WriteFailed, WriterUnavailable
from pipeline.sink.write_options import WriteOptions


class WriterDoor:
    """A client of the writer at the endpoint; a context manager that closes it.

    ``unreachable_s`` is how long an address is tried where nobody listens, if not all of the time.
    """

    def __init__(
        self,
        options: WriteOptions,
        *,
        timeout_s: float | None = None,
        unreachable_s: float = float("inf"),
    ) -> None:
        from penstock import Client  # gRPC: in the process that uses it, and no earlier
        from penstock.retry import RetryPolicy

        self._options = options
        self.client = Client(
            writer=options.endpoint,
            timeout_s=timeout_s or options.timeout_s,
            retry=RetryPolicy(unreachable_s_max=unreachable_s),
        )

    def __enter__(self) -> WriterDoor:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def queue_count(self, topic: str) -> int:
        """Return how many queues of a topic can be written. Raises WriteFailed."""
        from penstock.errors import PenstockError, TopicNotFound

        try:
            return self.client.describe_topic(topic).topic.write_queue_count
        except TopicNotFound as error:
            raise WriteFailed(
                f"topic {topic!r} does not exist at {self._options.endpoint}; create it first:"
                f" penstock topic create {topic}"
            ) from error
        except PenstockError as error:
            raise self.failed(error) from error

    def check(self) -> None:
        """Raise WriteFailed unless the writer takes writes."""
        from penstock.errors import PenstockError

        try:
            status = self.client.writer_status()
        except PenstockError as error:
            raise self.failed(error) from error
        if not status.writable:
            raise WriteFailed(
                f"the writer at {self._options.endpoint} is read-only: {status.problem}"
            )

    def failed(self, error: Exception) -> WriteFailed:
        """Return what an error of the client is to be raised as."""
        from penstock.errors import DeadlineExceeded, Unavailable

        endpoint = self._options.endpoint
        if isinstance(error, Unavailable | DeadlineExceeded):
            return WriterUnavailable(
                f"option 'endpoint': no writer answers at {endpoint} ({error}); is penstock serve, or"
                " the writer, running there, and is this not the reader's address?"
            )
        return WriteFailed(f"the writer at {endpoint} refused: {error}")
