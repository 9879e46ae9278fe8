"""Texts that people type for an option and that mean something else: times, places in a queue, sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from services import times

T = TypeVar("T")


def parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser for an option: what ``parse`` refuses with ValueError is wrong usage."""

    def parser(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parser


Since = Annotated[
    int | None,
    typer.Option(
        metavar="TIME",
        parser=parsed(times.parse_time_ms),
        help="Stored at or after: 15m (ago), ISO 8601 (without a zone: local), or Unix ms.",
    ),
]
Until = Annotated[
    int | None,
    typer.Option(metavar="TIME", parser=parsed(times.parse_time_ms), help="Stored before."),
]


def parse_delivery_ms(text: str) -> int:
    """Return Unix milliseconds of a time of delivery. A duration is refused: it would be so long ago."""
    if re.fullmatch(r"(\d+)([smhd])", text):
        raise ValueError(f"it is a time: use --delay {text}")
    try:
        return times.parse_time_ms(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: give 2013-11-01T10:00:00Z, or Unix milliseconds"
        ) from None


def local_time_text(timestamp_ms: int) -> str:
    """Return Unix milliseconds as a local time with its zone."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(timespec="milliseconds")
