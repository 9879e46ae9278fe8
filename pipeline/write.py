"""Writing a store with Spark, exactly once: tasks stage what they have, the driver commits it.

A task sends its rows in parts of some megabytes. A part is staged with the writer under an attempt id
that nobody else ever has, and its Arrow batches are kept until that is acknowledged, so that a part
which a restarting writer lost is staged anew, under another id. What the task returns are the ids of
its parts. The commit names those of the tasks that Spark chose; whatever else was staged is removed.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.errors import InvalidOption, WriteFailed
from pipeline.write_options import WriteOptions, parse_write

PART_SIZE: Final = 16 << 20  # of Arrow data staged as one attempt
PARTS_IN_FLIGHT: Final = 2
RETRY_FIRST_S: Final = 0.1
RETRY_MOST_S: Final = 2.0
CALL_TIMEOUT_S: Final = 120.0
BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged: the transaction, and its attempts in the order of their rows."""

    app_id: str
    version: int
    attempts: tuple[str, ...]
    row_count: int


def make_writer(given: dict[str, str], schema: StructType, *, overwrite: bool) -> MessageWriter:
    """Check everything that can be checked before a task runs, and return a writer of a batch.

    Raises InvalidOption, InvalidColumn, WriteFailed.
    """
    options = _checked(given, schema, overwrite=overwrite, streaming=False)
    return MessageWriter(options)


def make_stream_writer(
    given: dict[str, str], schema: StructType, *, overwrite: bool
) -> MessageStreamWriter:
    """Return a writer of a stream's batches. Raises InvalidOption, InvalidColumn, WriteFailed."""
    options = _checked(given, schema, overwrite=overwrite, streaming=True)
    return MessageStreamWriter(options)


def _checked(
    given: dict[str, str], schema: StructType, *, overwrite: bool, streaming: bool
) -> WriteOptions:
    if overwrite:
        raise InvalidOption(
            "mode",
            "a log is appended to and never overwritten; use mode('append'), for a stream"
            " outputMode('append') or 'update'",
        )
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    options = parse_write(given, columns, streaming=streaming)
    with _Writer(options) as writer:
        if options.topic is not None:
            writer.queue_count(options.topic)
        else:
            writer.check()
    return options


class MessageWriter(DataSourceArrowWriter):
    """Writes a batch as one transaction, the user's or one of its own."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.one_off = options.app_id is None
        self.app_id = options.app_id or f"batch-{uuid.uuid4().hex}"
        self.version = options.version or 0

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task; nothing of a task that fails is kept."""
        return _stage_task(self.options, iterator, self.app_id, self.version, one_off=self.one_off)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store what the tasks staged, once."""
        staged = _of(messages)
        if self.one_off and not any(each.attempts for each in staged):
            return
        _commit(self.options, self.app_id, self.version, staged, one_off=self.one_off)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks staged."""
        _abort(self.options, _of(messages), everything=(self.one_off and self.app_id) or None)


class MessageStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream as a transaction: the query's or the user's id, its number."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        app_id = self.options.app_id or context.getLocalProperty(QUERY_ID)
        version = context.getLocalProperty(BATCH_ID)
        if not app_id or version is None:
            raise WriteFailed("Spark does not say which query and batch this is; give 'txnAppId'")
        return _stage_task(self.options, iterator, app_id, int(version))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Store what the tasks staged, once, however often the batch is run and committed."""
        staged = _of(messages)
        if staged:
            _commit(self.options, staged[0].app_id, batchId, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what these tasks staged, and nothing of a later run of the batch."""
        _abort(self.options, _of(messages))


def _of(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


class _Writer:
    """The store's writer as this process reaches it; errors are in words for who set the options."""

    def __init__(self, options: WriteOptions) -> None:
        from penstock.client import Client  # gRPC: in the process that uses it, and no earlier

        self._options = options
        self.client = Client(writer=options.endpoint, timeout_s=options.timeout_s)

    def __enter__(self) -> _Writer:
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
                f" penstock topics create {topic}"
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
            return WriteFailed(
                f"option 'endpoint': no writer answers at {endpoint} ({error}); is penstock serve, or"
                " the writer, running there, and is this not the reader's address?"
            )
        return WriteFailed(f"the writer at {endpoint} refused: {error}")


def _stage_task(
    options: WriteOptions,
    batches: Iterator[Any],
    app_id: str,
    version: int,
    *,
    one_off: bool = False,
) -> Staged:
    context = TaskContext.get()
    assert context is not None
    name = f"{context.partitionId()}-{context.taskAttemptId()}-{uuid.uuid4().hex[:12]}"
    with _Writer(options) as writer:
        task = _TaskStages(
            writer, options, app_id, version, one_off=one_off, name=name,
            first_number=context.partitionId() << 32,
        )  # fmt: skip
        return task.run(batches)


class _TaskStages:
    """The parts of one task: gathered here, encoded and staged beside by a thread."""

    def __init__(
        self, writer: _Writer, options: WriteOptions, app_id: str, version: int, *, one_off: bool,
        name: str, first_number: int,
    ) -> None:  # fmt: skip
        from pipeline.encode import Encoder

        self._writer = writer
        self._timeout_s = options.timeout_s
        self._app_id = app_id
        self._version = version
        self._transaction = writer.client.transaction(app_id, version, one_off=one_off)
        self._encoder = Encoder(options.columns, options.topic, writer.queue_count)
        self._name = name
        self._first_number = first_number
        self._part_count = 0
        self._attempts: list[str] = []
        self._decided = False

    def run(self, batches: Iterator[Any]) -> Staged:
        """Stage everything; on any failure remove what was staged."""
        staging: deque[Future[str | None]] = deque()
        row_count = 0
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="penstock-stage") as thread:
                for part in self._parts(batches):
                    row_count += sum(rows.row_count for rows in part)
                    if self._decided:
                        continue  # the rows are stored already; Spark wants them to be read
                    staging.append(thread.submit(self._stage, part))
                    if len(staging) > PARTS_IN_FLIGHT:
                        self._take(staging.popleft())
                while staging:
                    self._take(staging.popleft())
        except BaseException:
            with suppress(Exception):
                self._transaction.abort(self._attempts, timeout_s=5)
            raise
        return Staged(self._app_id, self._version, tuple(self._attempts), row_count)

    def _take(self, staging: Future[str | None]) -> None:
        attempt = staging.result()
        if attempt is None:
            self._decided = True
        else:
            self._attempts.append(attempt)

    def _parts(self, batches: Iterator[Any]) -> Iterator[list[Any]]:
        from pipeline.encode import Rows

        part: list[Rows] = []
        size = 0
        number = self._first_number
        for batch in batches:
            if batch.num_rows == 0:
                continue
            part.append(Rows(self._encoder, batch, first_number=number))
            number += batch.num_rows
            size += part[-1].byte_count
            if size >= PART_SIZE:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _stage(self, part: list[Any]) -> str | None:
        """Stage one part, anew for as long as the writer may come back; None if all is decided."""
        from penstock.errors import (
            Cancelled,
            DeadlineExceeded,
            PenstockError,
            ResourceExhausted,
            Unavailable,
        )

        passing = (Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable)
        deadline = time.monotonic() + self._timeout_s
        delay_s = RETRY_FIRST_S
        self._part_count += 1
        retry = 0
        while True:
            attempt = f"{self._name}-{self._part_count}-{retry}"
            source = _Source(part, self._app_id, self._version, attempt)
            try:
                staged = self._transaction.stage(attempt, source, timeout_s=CALL_TIMEOUT_S)
            except PenstockError as error:
                if source.error is not None:
                    raise source.error from error
                if not isinstance(error, passing) or time.monotonic() > deadline:
                    raise self._writer.failed(error) from error
                time.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MOST_S)
                retry += 1
            else:
                return None if staged.decided else attempt


class _Source:
    """The chunks of a part, and what went wrong in making them, which gRPC would swallow."""

    def __init__(self, part: list[Any], app_id: str, version: int, attempt: str) -> None:
        from storage.format.stage import stage_prefix

        self._part = part
        self._prefix = stage_prefix(app_id, version, attempt)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[memoryview]:
        from pipeline.encode import chunks
        from storage.clock import SystemClock

        try:
            yield from chunks(self._part, self._prefix, SystemClock().now_ms())
        except Exception as error:  # told by whoever waits for the call
            self.error = error
            raise


def _commit(
    options: WriteOptions,
    app_id: str,
    version: int,
    staged: Sequence[Staged],
    *,
    one_off: bool = False,
) -> None:
    from penstock.errors import PenstockError

    attempts = [attempt for each in staged for attempt in each.attempts]
    with _Writer(options) as writer:
        try:
            writer.client.transaction(app_id, version, one_off=one_off).commit(
                attempts, timeout_s=max(options.timeout_s, CALL_TIMEOUT_S)
            )
        except PenstockError as error:
            raise writer.failed(error) from error


def _abort(
    options: WriteOptions, staged: Sequence[Staged], *, everything: str | None = None
) -> None:
    """Remove stages as far as that can be done: what stays is removed by the writer in time."""
    with _Writer(options) as writer, suppress(Exception):
        if everything is not None:
            writer.client.transaction(everything, 0).abort(None, timeout_s=5)
        for each in staged:
            if each.attempts:
                transaction = writer.client.transaction(each.app_id, each.version)
                transaction.abort(each.attempts, timeout_s=5)


def is_committed(endpoint: str, app_id: str, version: int) -> bool:
    """Tell whether a transaction, or a later one of its application, is stored. Raises WriteFailed."""
    from penstock.errors import PenstockError

    options = parse_write(
        {"endpoint": endpoint, "topic": "any"}, [("value", "binary")], streaming=False
    )
    with _Writer(options) as writer:
        try:
            return any(
                each.app_id == app_id and each.last_version >= version
                for each in writer.client.transactions()
            )
        except PenstockError as error:
            raise writer.failed(error) from error


def queue_count_of(endpoint: str, topic: str) -> int:
    """Return how many queues of a topic can be written. Raises WriteFailed."""
    options = parse_write(
        {"endpoint": endpoint, "topic": topic}, [("value", "binary")], streaming=False
    )
    with _Writer(options) as writer:
        return writer.queue_count(topic)
