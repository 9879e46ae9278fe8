"""What a task has staged, and the ids of its attempts: light, for the driver to unpickle."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage


@dataclass
class StagedRows(WriterCommitMessage):
    """What a task staged: the staged commit, and its attempts in the order of their rows."""

    app_id: str
    version: int
    attempts: tuple[str, ...]
    row_count: int


def new_run() -> str:
    """Return what the attempts of one write, and of no other, have in their ids."""
    return uuid.uuid4().hex[:12]


def attempt_id(partition: int, task_attempt: int, run: str, part: int, retry: int) -> str:
    """Return an id that nothing else is ever staged under."""
    return f"{partition}-{task_attempt}-{run}-{part}-{retry}"


def run_of(attempt: str) -> str:
    """Return the run of an attempt id, "" if the id is of another form."""
    parts = attempt.split("-")
    return parts[2] if len(parts) == 5 else ""
