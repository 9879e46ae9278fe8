"""Columns of the properties that a filter names, for many records at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.kernels import property_values as kernels

Int64s = npt.NDArray[np.int64]
Truths: TypeAlias = npt.NDArray[np.uint8]
"""Truth values of many records at once: FALSE, TRUE, NULL, or ERROR."""
FALSE: Final = 0
TRUE: Final = 1
NULL: Final = 2
ERROR: Final = 3


class Texts:
    """Texts that values are compared with, encoded once."""

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(b"".join(encoded), np.uint8)
        self.ends: Int64s = np.cumsum([len(text) for text in encoded], dtype=np.int64)


class PropertyColumn:
    """The values of one property in all records."""

    def __init__(self, data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> None:
        self._data, self.starts, self.lengths = data, starts, lengths

    @cached_property
    def is_absent(self) -> npt.NDArray[np.bool_]:
        """Which records do not have it."""
        return self.starts < 0

    def matches(self, texts: Texts, how: int) -> npt.NDArray[np.bool_]:
        """Return where one of the texts is found, ``how`` as the kernels name it."""
        found = np.empty(len(self.starts), np.int64)
        done = kernels.match_texts(
            self._data, self.starts, self.lengths, texts.bytes, texts.ends, how, found
        )
        assert done == 0
        return found.astype(np.bool_)

    def equals(self, other: PropertyColumn) -> npt.NDArray[np.bool_]:
        """Return where both are there and equal."""
        found = np.empty(len(self.starts), np.int64)
        done = kernels.match_values(
            self._data, self.starts, self.lengths, other.starts, other.lengths, found
        )
        assert done == 0
        return found.astype(np.bool_)

    @cached_property
    def texts(self) -> list[str]:
        """The values as texts, empty where there is none; bytes that are no UTF-8 become U+FFFD."""
        data = self._data.data
        return [
            str(data[start : start + length], errors="replace") if length else ""
            for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        ]

    @cached_property
    def integers(self) -> tuple[Int64s, Truths]:
        """The values as integers; TRUE, NULL or ERROR where one is there, is absent, is not a number."""
        numbers, states = np.empty((2, len(self.starts)), np.int64)
        done = kernels.read_integers(self._data, self.starts, self.lengths, numbers, states)
        assert done == 0
        return numbers, _READ_STATES[states]

    @cached_property
    def decimals(self) -> tuple[npt.NDArray[np.float64], Truths]:
        """The values as doubles, otherwise as :attr:`integers`."""
        numbers = np.empty(len(self.starts), np.float64)
        states = np.empty(len(self.starts), np.int64)
        done = kernels.read_decimals(self._data, self.starts, self.lengths, numbers, states)
        assert done == 0
        for i in np.flatnonzero(states == kernels.INEXACT).tolist():
            begin = int(self.starts[i])
            text = self._data[begin : begin + int(self.lengths[i])].tobytes().decode("ascii")
            numbers[i] = float(text.strip().rstrip("dDfF"))
            states[i] = kernels.READ
        return numbers, _READ_STATES[states]


_READ_STATES = np.array([NULL, TRUE, ERROR], np.uint8)
assert (kernels.ABSENT, kernels.READ, kernels.NO_NUMBER, FALSE) == (0, 1, 2, 0)


class PropertyColumns:
    """The columns of ``names`` in the records of ``data`` that begin at ``positions``, one at least.

    ``data`` is an array of bytes that holds the records whole, as they are in the commit log, and checked.
    """

    def __init__(self, data: npt.NDArray[np.uint8], positions: Int64s, names: Texts) -> None:
        count = len(positions)
        self.count = count
        starts, lengths = np.empty((2, count * len(names.ends)), np.int64)
        done = kernels.find_properties(data, positions, names.bytes, names.ends, starts, lengths)
        assert done == 0, "a record is not whole"
        self._columns = [
            PropertyColumn(data, starts[begin : begin + count], lengths[begin : begin + count])
            for begin in range(0, count * len(names.ends), count)
        ]

    def __getitem__(self, number: int) -> PropertyColumn:
        return self._columns[number]
