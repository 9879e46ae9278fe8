"""A stream driven as Spark drives it, without Spark: a write-ahead log of offsets, and batches."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from pipeline.source.stream.stream import StreamReader

Row = tuple[str, int, int]
Offset = dict[str, Any]


def through_json(offset: Offset) -> Offset:
    """What the reader gets back from Spark's checkpoint."""
    return json.loads(json.dumps(offset))


class Query:
    """Spark's side of a stream: a write-ahead log of offsets, and what each batch read."""

    def __init__(self, reader: StreamReader, start: Offset | None = None) -> None:
        self.reader = reader
        self.start = start
        self.batches: list[list[Row]] = []

    def step(self, limit: ReadLimit | None = None) -> list[Row] | None:
        """Plan and run one batch; None if there is none to run."""
        start = self.start or through_json(self.reader.initialOffset())
        limit = limit or self.reader.getDefaultReadLimit()
        end = through_json(self.reader.latestOffset(start, limit))
        if end == start:
            return None
        if self.start is None:
            start = through_json(self.reader.initialOffset())
        rows = self.run(start, end)
        self.batches.append(rows)
        self.start = end
        return rows

    def run(self, start: Offset, end: Offset) -> list[Row]:
        rows: list[Row] = []
        for task in self.reader.partitions(start, end):
            for batch in self.reader.read(task):
                columns = batch.to_pydict()
                rows += zip(
                    columns["topic"], columns["queueId"], columns["queueOffset"], strict=True
                )
        return rows

    def drain(self, limit: ReadLimit | None = None) -> list[Row]:
        """Run batches until there is none."""
        rows: list[Row] = []
        while (batch := self.step(limit)) is not None:
            rows += batch
        return rows
