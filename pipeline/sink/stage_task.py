"""One task of a write: its rows gathered in parts, each encoded and staged beside by a thread.

A part is staged under an attempt id that nobody else ever has. Its Arrow batches are kept until that
is acknowledged: what a restarting writer lost is encoded and staged anew, under another id.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pipeline.sink.write_options import WriteOptions
from pipeline.sink.writer_door import WriterDoor

PART_SIZE: Final = 16 << 20  # of Arrow data staged as one attempt
PARTS_IN_FLIGHT: Final = 2
RETRY_FIRST_S: Final = 0.1
RETRY_MOST_S: Final = 2.0
CALL_TIMEOUT_S: Final = 120.0


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged: the staged commit, and its attempts in the order of their rows."""

    app_id: str
    version: int
    attempts: tuple[str, ...]
    row_count: int


def stage_task(
    options: WriteOptions,
    batches: Iterator[Any],
    app_id: str,
    version: int,
    *,
    run: str,
    one_off: bool = False,
) -> Staged:
    """Stage the rows of this task; where this fails nothing of it is kept. Raises PipelineError.

    A task whose input fails looks from here like one whose input ends, and a task that is killed
    like nothing at all: what these staged is removed by whoever ends the write, who tells it by
    ``run``, which every attempt id contains.
    """
    from storage.kernels.encode import QUEUE_RUN  # compiled code, for tasks only

    context = TaskContext.get()
    assert context is not None
    name = f"{context.partitionId()}-{context.taskAttemptId()}-{run}"
    with WriterDoor(options) as writer:
        task = _TaskStages(
            writer, options, app_id, version, one_off=one_off, name=name,
            first_turn=context.partitionId() * QUEUE_RUN,
        )  # fmt: skip
        return task.run(batches)


class _TaskStages:
    """The parts of one task."""

    def __init__(
        self, writer: WriterDoor, options: WriteOptions, app_id: str, version: int, *, one_off: bool,
        name: str, first_turn: int,
    ) -> None:  # fmt: skip
        from pipeline.sink.encode import Encoder

        self._writer = writer
        self._timeout_s = options.timeout_s
        self._app_id = app_id
        self._version = version
        self._staged_commit = writer.client.staged_commit(app_id, version, one_off=one_off)
        self._encoder = Encoder(
            options.columns, options.topic, writer.queue_count, first_turn=first_turn
        )
        self._name = name
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
                self._staged_commit.abort(self._attempts, timeout_s=5)
            raise
        return Staged(self._app_id, self._version, tuple(self._attempts), row_count)

    def _take(self, staging: Future[str | None]) -> None:
        attempt = staging.result()
        if attempt is None:
            self._decided = True
        else:
            self._attempts.append(attempt)

    def _parts(self, batches: Iterator[Any]) -> Iterator[list[Any]]:
        from pipeline.sink.encode import Rows

        part: list[Rows] = []
        size = 0
        number = 0
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

        passing = (Cancelled, DeadlineExceeded, Unavailable)
        deadline = time.monotonic() + self._timeout_s
        delay_s = RETRY_FIRST_S
        self._part_count += 1
        retry = 0
        while True:
            attempt = f"{self._name}-{self._part_count}-{retry}"
            source = _Source(part, self._app_id, self._version, attempt)
            try:
                staged = self._staged_commit.stage(attempt, source, timeout_s=CALL_TIMEOUT_S)
            except PenstockError as error:
                if source.error is not None:
                    raise source.error from error
                # Without a delay it is not a full disk but a message that is too long for the writer.
                full = isinstance(error, ResourceExhausted) and error.retry_delay_ms > 0
                if not (full or isinstance(error, passing)) or time.monotonic() > deadline:
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
        from pipeline.sink.encode import chunks
        from storage.clock import SystemClock

        try:
            yield from chunks(self._part, self._prefix, SystemClock().now_ms())
        except Exception as error:  # told by whoever waits for the call
            self.error = error
            raise
