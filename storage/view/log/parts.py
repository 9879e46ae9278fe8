"""Ranges of the log as they lie in its files, for whoever looks records up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from storage.kernels.columns import CHECK_ALL, ByteArray
from storage.view.log.walk import RecordRun, walk_range


class LogPart(NamedTuple):
    """Commit offsets ``[begin_offset, end_offset)`` in one file: ``data[0]`` is at ``data_offset``."""

    data: ByteArray
    data_offset: int
    begin_offset: int
    end_offset: int


class RecordSource(Protocol):
    """The log as far as records are looked up in it."""

    @property
    def generation(self) -> int:
        """A number that changes when files come or go."""
        ...

    def parts(self, begin_offset: int, end_offset: int) -> Iterator[LogPart]:
        """Yield what there is of a range, file by file."""
        ...


def record_runs(
    log: RecordSource,
    begin_offset: int,
    end_offset: int,
    *,
    checks: int = CHECK_ALL,
    run_bytes: int | None = None,
) -> Iterator[RecordRun]:
    """Yield the runs of intact records of a range, which begins where a record or a file does.

    Each is good until the next one; ``checks`` and ``run_bytes`` are those of ``walk_range``.
    """
    for part in log.parts(begin_offset, end_offset):
        for step in walk_range(*part, checks=checks, run_bytes=run_bytes):
            if isinstance(step, RecordRun):
                yield step
