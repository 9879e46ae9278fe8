"""What can be wrong with a read or a job, in words for whoever wrote the options."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all; the message names what is wrong and what to do."""


class InvalidOption(PipelineError):
    """An option is unknown, contradicts another, or has a value that cannot be used."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option!r}: {problem}")
        self.option = option


class NotAStore(PipelineError):
    """A directory holds no commit log."""


class DataLost(PipelineError):
    """What was asked for has been removed from the store."""


class DamagedRecord(PipelineError):
    """A record is damaged and the mode is FAILFAST."""


class WrongCheckpoint(PipelineError):
    """A stream's checkpoint does not fit the store or the options it is started with."""
