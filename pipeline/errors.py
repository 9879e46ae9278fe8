"""What can be wrong with a read or a job, in words for whoever wrote the options.

What is wrong with a store itself is one of the store's own errors: NotAStore, UnsupportedFormat,
StoreLocked.
"""

from __future__ import annotations

from collections.abc import Collection

from storage.errors import NotAStore as NotAStore
from storage.errors import PicklableError
from storage.errors import StoreError as StoreError
from storage.errors import StoreLocked as StoreLocked
from storage.errors import UnsupportedFormat as UnsupportedFormat


class PipelineError(PicklableError):
    """Base of all; the message names what is wrong and what to do."""


class InvalidOption(PipelineError):
    """An option is unknown, contradicts another, or has a value that cannot be used."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option!r}: {problem}")
        self.option = option


def unknown_topic(where: str, name: str, known: Collection[str], verb: str = "is named") -> str:
    """Return what is wrong with the name of a topic that is not there, with some that are."""
    some = ", ".join(sorted(known)[:10]) or "none"
    return f"{where}: no topic {verb} {name!r}; topics: {some}"


class DataLost(PipelineError):
    """What was asked for has been removed from the store."""


class ReaderUnavailable(PipelineError):
    """A reader service does not answer, or what answers is none."""


class DamagedLog(PipelineError):
    """The log is damaged in what was to be read, and the mode is FAILFAST."""


class WrongCheckpoint(PipelineError):
    """A stream's checkpoint does not fit the store or the options it is started with."""


class InvalidColumn(PipelineError):
    """A column of a write is missing, unknown, of the wrong type, or holds what no message can."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column!r}: {problem}")
        self.column = column


class WriteFailed(PipelineError):
    """The writer refused what was to be written, or could not be reached."""


class WriterUnavailable(WriteFailed):
    """No writer answers at the endpoint."""


class TaskFailed(PipelineError):
    """A task of a job failed for a reason that no other error names: a full disk, say."""
