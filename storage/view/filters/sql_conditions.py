"""The conditions of an SQL92 filter, each a function from columns of properties to truth values.

What an expression means is a RocketMQ broker's: values are texts, which are read as numbers where they
meet one; a property that is absent is NULL; a text that is not the number it should be drops the message.

An ERROR is what ends a broker's evaluation of a message, and no operator takes it back: its filter drops that
message. As a broker looks at the right side only if the left one does not decide, a FALSE or TRUE on the
left may hide an ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.kernels.property_values import EQUAL
from storage.view.filters.property_columns import (
    ERROR,
    FALSE,
    NULL,
    TRUE,
    PropertyColumns,
    Texts,
    Truths,
)

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
_TRUE_TEXTS: Final = Texts([t + r + u + e for t in "tT" for r in "rR" for u in "uU" for e in "eE"])
_AND: Final = np.array(
    [  # by the right side: FALSE, TRUE, NULL, ERROR
        [FALSE, FALSE, FALSE, FALSE],
        [FALSE, TRUE, NULL, ERROR],
        [FALSE, NULL, NULL, ERROR],
        [ERROR, ERROR, ERROR, ERROR],
    ],
    np.uint8,
)
_OR: Final = np.array(
    [
        [FALSE, TRUE, NULL, ERROR],
        [TRUE, TRUE, TRUE, TRUE],
        [NULL, TRUE, NULL, ERROR],
        [ERROR, ERROR, ERROR, ERROR],
    ],
    np.uint8,
)
_NOT: Final = np.array([TRUE, FALSE, NULL, ERROR], np.uint8)
_EQUAL: Final = np.array(
    [  # a NULL beside a value: NULL if it is on the left, FALSE on the right
        [TRUE, FALSE, FALSE, ERROR],
        [FALSE, TRUE, FALSE, ERROR],
        [NULL, NULL, TRUE, ERROR],
        [ERROR, ERROR, ERROR, ERROR],
    ],
    np.uint8,
)
_IS_NULL: Final = np.array([FALSE, FALSE, TRUE, ERROR], np.uint8)

Order: TypeAlias = Callable[[Any, Any], Any]
Condition: TypeAlias = Callable[[PropertyColumns], Truths]
"""Returns the truth value of each record."""


@dataclass(frozen=True)
class Constant:
    """TRUE, FALSE or NULL."""

    truth: int

    def __call__(self, columns: PropertyColumns) -> Truths:
        return np.full(columns.count, self.truth, np.uint8)


def property_as_condition(number: int) -> Condition:
    """Return FALSE where the property is there: a text is not TRUE. NULL elsewhere."""
    return lambda columns: np.where(columns[number].is_absent, NULL, FALSE).astype(np.uint8)


def property_as_truth(number: int) -> Condition:
    """Return TRUE where the property is that word, in any case, as beside a condition in a comparison."""

    def evaluate(columns: PropertyColumns) -> Truths:
        truths = columns[number].matches(_TRUE_TEXTS, EQUAL).astype(np.uint8)
        truths[columns[number].is_absent] = NULL
        return truths

    return evaluate


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return ``first AND second AND ...``, however many: they nest nothing."""
    return lambda columns: reduce(
        lambda left, right: _AND[left, right], (each(columns) for each in conditions)
    )


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return ``first OR second OR ...``, however many: they nest nothing."""
    return lambda columns: reduce(
        lambda left, right: _OR[left, right], (each(columns) for each in conditions)
    )


def negation(condition: Condition) -> Condition:
    """Return ``NOT condition``; NULL stays NULL."""
    return lambda columns: _NOT[condition(columns)]


def is_null(condition: Condition) -> Condition:
    """Return ``condition IS NULL``: TRUE where it is neither true nor false."""
    return lambda columns: _IS_NULL[condition(columns)]


def conditions_equal(left: Condition, right: Condition) -> Condition:
    """Return ``(left) = (right)``: whether both have the same truth value."""
    return lambda columns: _EQUAL[left(columns), right(columns)]


def text_found(
    number: int, texts: Texts, how: int, absent: int, *, is_negated: bool = False
) -> Condition:
    """Return whether a property equals one of the texts, contains, starts with or ends with one.

    ``absent`` is the truth of a record that does not have the property.
    """

    def evaluate(columns: PropertyColumns) -> Truths:
        found = (columns[number].matches(texts, how) ^ is_negated).astype(np.uint8)
        found[columns[number].is_absent] = absent
        return found

    return evaluate


def number_compared(number: int, order: Order, limit: int | float, absent: int) -> Condition:
    """Return TRUE where the order of a property and a number holds, ERROR where it is no such number."""

    def evaluate(columns: PropertyColumns) -> Truths:
        values: npt.NDArray[Any]
        if isinstance(limit, float):
            values, states = columns[number].decimals
        else:
            values, states = columns[number].integers
            if INT32_MIN <= limit <= INT32_MAX:  # a broker reads the text as such an integer
                outside = (values < INT32_MIN) | (values > INT32_MAX)
                states = np.where(outside, np.uint8(ERROR), states)
        holds = order(values, limit).astype(np.uint8)
        return np.where(states == TRUE, holds, np.where(states == NULL, np.uint8(absent), states))

    return evaluate


def properties_ordered(left: int, right: int, order: Order) -> Condition:
    """Return TRUE where the order of two doubles holds, NULL where one is absent, ERROR where one is no number."""

    def evaluate(columns: PropertyColumns) -> Truths:
        left_values, left_states = columns[left].decimals
        right_values, right_states = columns[right].decimals
        holds: Truths = order(left_values, right_values).astype(np.uint8)
        holds[(left_states == ERROR) | (right_states == ERROR)] = ERROR
        holds[(left_states == NULL) | (right_states == NULL)] = NULL
        return holds

    return evaluate


def properties_equal(left: int, right: int) -> Condition:
    """Return TRUE where both are the same text or absent, NULL where only the left one is absent."""

    def evaluate(columns: PropertyColumns) -> Truths:
        is_absent = columns[left].is_absent
        both = is_absent & columns[right].is_absent
        holds = (columns[left].equals(columns[right]) | both).astype(np.uint8)
        holds[is_absent & ~both] = NULL
        return holds

    return evaluate
