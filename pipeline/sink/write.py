"""Writing a store with Spark, exactly once: tasks stage what they have, the driver commits it.

What a task returns are the ids of what it staged. The commit names those of the tasks that Spark
chose; whatever else was staged is removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.errors import InvalidOption, WriteFailed
from pipeline.sink.staged import StagedRows, new_run, run_of
from pipeline.sink.write_options import WriteOptions, parse_write
from pipeline.sink.writer_connection import WriterConnection

CALL_TIMEOUT_S: Final = 120.0
PLANNING_TIMEOUT_S: Final = 10.0
BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"


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
    # A query that is going on waits for a writer that restarts; one that begins fails soon.
    timeout_s = options.timeout_s if streaming else min(options.timeout_s, PLANNING_TIMEOUT_S)
    with WriterConnection(options.endpoint, options.tls, timeout_s=timeout_s) as writer:
        if options.topic is not None:
            writer.queue_count(options.topic)
        else:
            writer.check_writable()
    return options


class MessageWriter(DataSourceArrowWriter):
    """Writes a batch as one staged commit, the user's or one of its own."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.one_off = options.app_id is None
        self.app_id = options.app_id or f"batch-{uuid.uuid4().hex}"
        self.version = options.version or 0
        self.run = new_run()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return _stage(
            self.options, iterator, self.app_id, self.version, run=self.run, one_off=self.one_off
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store what the tasks staged, once."""
        staged = _of(messages)
        if self.one_off and not any(each.attempts for each in staged):
            return
        _commit(self.options, self.app_id, self.version, staged, one_off=self.one_off)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove what the tasks staged, also those that failed, and nothing of another run."""
        _abort(self.options, self.run)


class MessageStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream as a staged commit: the query's or the user's id, its number."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.run = new_run()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        app_id = self.options.app_id or context.getLocalProperty(QUERY_ID)
        version = context.getLocalProperty(BATCH_ID)
        if not app_id or version is None:
            raise WriteFailed("Spark does not say which query and batch this is; give 'txnAppId'")
        return _stage(self.options, iterator, app_id, int(version), run=self.run)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Store what the tasks staged, once, however often the batch is run and committed."""
        staged = _of(messages)
        if staged:
            _commit(self.options, staged[0].app_id, batchId, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what the tasks staged, and nothing of a later run of the batch.

        Spark calls another writer than the tasks had: their run is known if one of them ended. Otherwise
        the stages are removed when the batch is committed.
        """
        staged = [attempt for each in _of(messages) for attempt in each.attempts]
        for run in {run_of(attempt) for attempt in staged}:
            _abort(self.options, run)


def _stage(
    options: WriteOptions,
    batches: Iterator[Any],
    app_id: str,
    version: int,
    *,
    run: str,
    one_off: bool = False,
) -> StagedRows:
    from pipeline.sink.stage_task import stage_task  # loads compiled code: in tasks only

    return stage_task(options, batches, app_id, version, run=run, one_off=one_off)


def _of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows)]


def _commit(
    options: WriteOptions,
    app_id: str,
    version: int,
    staged: Sequence[StagedRows],
    *,
    one_off: bool = False,
) -> None:
    attempts = [attempt for each in staged for attempt in each.attempts]
    timeout_s = max(options.timeout_s, CALL_TIMEOUT_S)
    with WriterConnection(options.endpoint, options.tls, timeout_s=options.timeout_s) as writer:
        writer.commit(app_id, version, attempts, one_off=one_off, timeout_s=timeout_s)


def _abort(options: WriteOptions, run: str) -> None:
    with WriterConnection(options.endpoint, options.tls, timeout_s=options.timeout_s) as writer:
        writer.abort(run)
