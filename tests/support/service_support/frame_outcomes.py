"""Answers of ProduceStream: one with one outcome, and the outcomes of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.v1 import writer_pb2


def answer_with(**outcome: Any) -> writer_pb2.ProduceStreamResponse:
    """Return the answer to one frame: ``stored`` or ``failure``."""
    return writer_pb2.ProduceStreamResponse(outcomes=[writer_pb2.FrameOutcome(**outcome)])


def outcomes_of(answers: Iterable[Any]) -> Iterator[writer_pb2.FrameOutcome]:
    """Yield the outcomes of a stream's answers, in the order of its frames."""
    for answer in answers:
        yield from answer.outcomes
