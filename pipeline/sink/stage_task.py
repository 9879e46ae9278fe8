"""One task of a write: its rows gathered in parts, each encoded and staged beside by a thread.

A part is staged under an attempt id that nobody else ever has. Its Arrow batches are kept until that
is acknowledged: what a restarting writer lost is encoded and staged again, under another id. Importing
this loads compiled code, so tasks do it and nobody else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

from pyspark import TaskContext

from penstock.errors import (
    Cancelled,
    DeadlineExceeded,
    PenstockError,
    ResourceExhausted,
    Unavailable,
)
from penstock.retry import RetryPolicy
from pipeline.errors import InvalidColumn
from pipeline.sink.staged import StagedRows, attempt_id
from pipeline.sink.write_options import WriteOptions
from pipeline.sink.writer_connection import WriterConnection
from storage.arrow.message_rows import ArrowRows, Encoder, chunks
from storage.clock import SystemClock
from storage.format.stage import stage_prefix
from storage.kernels.encode import QUEUE_RUN

PART_SIZE: Final = 16 << 20  # of Arrow data staged as one attempt
PARTS_IN_FLIGHT: Final = 2
RETRY: Final = RetryPolicy(first_delay_ms=100)
PASSING: Final = (Cancelled, DeadlineExceeded, Unavailable)


def stage_task(
    options: WriteOptions,
    batches: Iterator[Any],
    app_id: str,
    version: int,
    *,
    run: str,
    one_off: bool = False,
) -> StagedRows:
    """Stage the rows of this task; where this fails nothing of it is kept. Raises PipelineError.

    A task whose input fails looks from here like one whose input ends, and a task that is killed
    like nothing at all: what these staged is removed by whoever ends the write, who knows it by
    ``run``, which every attempt id contains.
    """
    context = TaskContext.get()
    assert context is not None
    with WriterConnection(options.endpoint, options.tls, timeout_s=options.timeout_s) as writer:
        task = _TaskStages(
            writer, options, app_id, version, one_off=one_off, partition=context.partitionId(),
            name=partial(attempt_id, context.partitionId(), context.taskAttemptId(), run),
        )  # fmt: skip
        return task.run(batches)


class _TaskStages:
    """The parts of one task."""

    def __init__(
        self, writer: WriterConnection, options: WriteOptions, app_id: str, version: int, *,
        one_off: bool, partition: int, name: Callable[[int, int], str],
    ) -> None:  # fmt: skip
        self._writer = writer
        self._timeout_s = options.timeout_s
        self._app_id = app_id
        self._version = version
        self._staged_commit = writer.client.staged_commit(app_id, version, one_off=one_off)
        self._encoder = Encoder(
            options.columns,
            options.topic,
            writer.queue_count,
            first_turn=partition * QUEUE_RUN,
            refuse=InvalidColumn,
            of_what=" of its task",
        )
        self._name = name
        self._part_count = 0
        self._attempts: list[str] = []
        self._decided = False

    def run(self, batches: Iterator[Any]) -> StagedRows:
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
                self._staged_commit.abort(self._attempts, timeout_s=5)
            raise
        return StagedRows(self._app_id, self._version, tuple(self._attempts), row_count)

    def _take(self, staging: Future[str | None]) -> None:
        attempt = staging.result()
        if attempt is None:
            self._decided = True
        else:
            self._attempts.append(attempt)

    def _parts(self, batches: Iterator[Any]) -> Iterator[list[ArrowRows]]:
        part: list[ArrowRows] = []
        size = 0
        number = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            part.append(ArrowRows(self._encoder, batch, first_number=number))
            number += batch.num_rows
            size += part[-1].byte_count
            if size >= PART_SIZE:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _stage(self, part: list[ArrowRows]) -> str | None:
        """Stage one part, again for as long as the writer may come back; None if all is decided."""
        deadline = time.monotonic() + self._timeout_s
        self._part_count += 1
        retry = 0
        while True:
            attempt = self._name(self._part_count, retry)
            source = _ChunkSource(part, self._app_id, self._version, attempt)
            try:
                staged = self._staged_commit.stage(attempt, source)
            except PenstockError as error:
                if source.error is not None:
                    raise source.error from error
                # Without a delay it is not a full disk but a message that is too long for the writer.
                full = isinstance(error, ResourceExhausted) and error.retry_delay_ms > 0
                if not (full or isinstance(error, PASSING)) or time.monotonic() > deadline:
                    raise self._writer.failed(error) from error
                time.sleep(RETRY.backoff_ms(retry) / 1000)
                retry += 1
            else:
                return None if staged.decided else attempt


class _ChunkSource:
    """The chunks of a part, and what went wrong in making them, which gRPC would swallow."""

    def __init__(self, part: list[ArrowRows], app_id: str, version: int, attempt: str) -> None:
        self._part = part
        self._prefix = stage_prefix(app_id, version, attempt)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[memoryview]:
        try:
            yield from chunks(self._part, self._prefix, SystemClock().now_ms())
        except Exception as error:  # raised by whoever waits for the call
            self.error = error
            raise
