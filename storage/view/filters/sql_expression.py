"""The parts of an SQL92 filter, each evaluated over columns of properties.

What an expression means is a RocketMQ broker's: values are texts, which are read as numbers where they
meet one; a property that is absent is NULL; a text that is not the number it should be drops the message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.kernels.property_values import EQUAL
from storage.view.filters.property_columns import PropertyColumns, Texts
from storage.view.filters.truth import (
    ERROR,
    FALSE,
    NULL,
    TRUE,
    Truths,
    all_of,
    any_of,
    equality,
    is_null,
    negation,
    truths_of,
)

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
_TRUE_TEXTS: Final = Texts([t + r + u + e for t in "tT" for r in "rR" for u in "uU" for e in "eE"])
Order: TypeAlias = Callable[[Any, Any], Any]


class Condition(Protocol):
    """What is true or not of a record."""

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return its truth value for each record."""


@dataclass(frozen=True)
class Property:
    """The value of a property, by its number among those that the filter names."""

    number: int


@dataclass(frozen=True)
class Number:
    """An integer, which only integers of its width are compared with, or a double."""

    value: int | float


@dataclass(frozen=True)
class Text:
    """A text in quotes."""

    value: str


@dataclass(frozen=True)
class NoValue:
    """A property with a minus before it: it is no number, so NULL."""


@dataclass(frozen=True)
class Constant:
    """TRUE, FALSE or NULL."""

    truth: int

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return it for each record."""
        return np.full(columns.count, self.truth, np.uint8)


@dataclass(frozen=True)
class PropertyAsCondition:
    """A property where a condition is wanted: a text is not TRUE."""

    number: int

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return FALSE where it is there, NULL elsewhere."""
        return np.where(columns[self.number].is_absent, NULL, FALSE).astype(np.uint8)


@dataclass(frozen=True)
class AllOf:
    """``first AND second AND ...``, however many: they nest nothing."""

    conditions: tuple[Condition, ...]

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return the truth of all, from the left."""
        return reduce(all_of, (each.evaluate(columns) for each in self.conditions))


@dataclass(frozen=True)
class AnyOf:
    """``first OR second OR ...``, however many: they nest nothing."""

    conditions: tuple[Condition, ...]

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return the truth of one or another, from the left."""
        return reduce(any_of, (each.evaluate(columns) for each in self.conditions))


@dataclass(frozen=True)
class Not:
    """``NOT condition``."""

    condition: Condition

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return the opposite; NULL stays NULL."""
        return negation(self.condition.evaluate(columns))


@dataclass(frozen=True)
class IsNull:
    """``condition IS NULL``; a property is one as well."""

    condition: Condition

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return TRUE where it is neither true nor false."""
        return is_null(self.condition.evaluate(columns))


@dataclass(frozen=True)
class TextFound:
    """A property that equals one of the texts, contains, starts with or ends with one.

    ``absent`` is the truth of a record that does not have the property.
    """

    number: int
    texts: Texts
    how: int
    absent: int
    is_negated: bool = False

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return TRUE where it is found, or where it is not if that is asked for."""
        column = columns[self.number]
        found = truths_of(column.matches(self.texts, self.how) ^ self.is_negated)
        found[column.is_absent] = self.absent
        return found


@dataclass(frozen=True)
class NumberCompared:
    """A property that is compared with a number."""

    number: int
    order: Order
    limit: int | float
    absent: int

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return TRUE where the order holds, ERROR where the property is no such number."""
        column = columns[self.number]
        values: npt.NDArray[Any]
        if isinstance(self.limit, float):
            values, states = column.decimals
        else:
            values, states = column.integers
            if INT32_MIN <= self.limit <= INT32_MAX:  # a broker reads the text as such an integer
                outside = (values < INT32_MIN) | (values > INT32_MAX)
                states = np.where(outside, np.uint8(ERROR), states)
        holds = truths_of(self.order(values, self.limit))
        missing = np.uint8(self.absent)
        return np.where(states == TRUE, holds, np.where(states == NULL, missing, states))


@dataclass(frozen=True)
class PropertiesOrdered:
    """Two properties in an order, both read as doubles."""

    left: int
    right: int
    order: Order

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return TRUE where the order holds, NULL where one is absent, ERROR where one is no number."""
        left, left_states = columns[self.left].decimals
        right, right_states = columns[self.right].decimals
        holds = truths_of(self.order(left, right))
        holds[(left_states == ERROR) | (right_states == ERROR)] = ERROR
        holds[(left_states == NULL) | (right_states == NULL)] = NULL
        return holds


@dataclass(frozen=True)
class PropertiesEqual:
    """Two properties that are the same text."""

    left: int
    right: int

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return TRUE where both are equal or absent, NULL where only the left one is absent."""
        left, right = columns[self.left], columns[self.right]
        holds = truths_of(left.equals(right) | (left.is_absent & right.is_absent))
        holds[left.is_absent & ~right.is_absent] = NULL
        return holds


@dataclass(frozen=True)
class ConditionsEqual:
    """``(condition) = (condition)``."""

    left: Condition
    right: Condition

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return whether both have the same truth value."""
        return equality(self.left.evaluate(columns), self.right.evaluate(columns))


@dataclass(frozen=True)
class PropertyAsTruth:
    """A property beside a condition in a comparison: TRUE if it is that word, in any case."""

    number: int

    def evaluate(self, columns: PropertyColumns) -> Truths:
        """Return its truth, NULL where it is absent."""
        column = columns[self.number]
        truths = truths_of(column.matches(_TRUE_TEXTS, EQUAL))
        truths[column.is_absent] = NULL
        return truths
