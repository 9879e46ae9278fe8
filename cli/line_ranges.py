"""Numbers of lines as ranges: what a command says of lines, and takes back, as ``17,40-99,5000-``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self, TypeVar

SHOWN_MAX: Final = 40  # ranges that one line of text names
_T = TypeVar("_T")
_RANGES: Final = re.compile(r"[0-9]+(-[0-9]*)?(,[0-9]+(-[0-9]*)?)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class LineRanges:
    """Lines by their numbers, the first line is 1: pairs of the first and the last line of a range.

    Ranges rise and do not touch; the last line of the last range is None where it has no end.
    """

    ranges: tuple[tuple[int, int | None], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Self:
        """Return the ranges of some lines, in any order."""
        found: list[tuple[int, int]] = []
        for number in sorted(numbers):
            if found and number <= found[-1][1] + 1:
                found[-1] = found[-1][0], number
            else:
                found.append((number, number))
        return cls(tuple(found))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a user typed; ValueError if that is not a list of rising ranges."""
        if not _RANGES.fullmatch(text):
            raise ValueError(f"{text!r} is not a list of lines such as 17,40-99,5000-")
        found: list[tuple[int, int | None]] = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            begin, end = int(first), (int(last) if last else None) if dash else int(first)
            before = found[-1][1] if found else 0
            if before is None or begin <= before or (end is not None and end < begin):
                raise ValueError(
                    f"{text!r}: lines begin with 1, and each range comes after the last"
                )
            found.append((begin, end))
        return cls(tuple(found))

    def select(self, lines: Iterable[tuple[int, _T]]) -> Iterator[tuple[int, _T]]:
        """Yield those of the numbered lines that are among these; read no line after the last."""
        ranges = iter(self.ranges)
        begin, end = next(ranges, (0, 0))
        for number, line in lines:
            if end is not None and number > end:
                begin, end = next(ranges, (0, 0))
                if not begin:
                    return
            if number >= begin:
                yield number, line
            if number == self.last:
                return

    @property
    def last(self) -> int | None:
        """The last line of all, None if there is no last one; 0 if there are no lines."""
        return self.ranges[-1][1] if self.ranges else 0

    def after(self, number: int) -> Self:
        """Return those of the lines that come after one."""
        return type(self)(
            tuple(
                (max(begin, number + 1), end)
                for begin, end in self.ranges
                if end is None or end > number
            )
        )

    def then(self, others: Self) -> Self:
        """Return these and others, all of which come after these."""
        if not self.ranges or not others.ranges:
            return self if self.ranges else others
        (begin, end), (next_begin, next_end) = self.ranges[-1], others.ranges[0]
        if end is not None and end + 1 == next_begin:
            joined = ((begin, next_end),)
            return type(self)(self.ranges[:-1] + joined + others.ranges[1:])
        return type(self)(self.ranges + others.ranges)

    def shown(self) -> str:
        """Return the ranges for a line of text: the first of them, if they are many."""
        return str(LineRanges(self.ranges[:SHOWN_MAX])) + (
            ",..." if len(self.ranges) > SHOWN_MAX else ""
        )

    def __str__(self) -> str:
        return ",".join(
            f"{begin}" if begin == end else f"{begin}-{'' if end is None else end}"
            for begin, end in self.ranges
        )
