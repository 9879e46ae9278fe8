"""Truth values of many records at once: FALSE, TRUE, NULL, and ERROR, which no operator takes back.

An ERROR stands for what ends a broker's evaluation of a message: its filter drops that message. As a
broker looks at the right side only if the left one does not decide, a FALSE or TRUE on the left may hide
an ERROR.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Truths: TypeAlias = npt.NDArray[np.uint8]

FALSE: Final = 0
TRUE: Final = 1
NULL: Final = 2
ERROR: Final = 3

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


def all_of(left: Truths, right: Truths) -> Truths:
    """Return ``left AND right``."""
    return _AND[left, right]


def any_of(left: Truths, right: Truths) -> Truths:
    """Return ``left OR right``."""
    return _OR[left, right]


def negation(truths: Truths) -> Truths:
    """Return ``NOT truths``."""
    return _NOT[truths]


def equality(left: Truths, right: Truths) -> Truths:
    """Return ``left = right`` of truth values themselves."""
    return _EQUAL[left, right]


def is_null(truths: Truths) -> Truths:
    """Return ``truths IS NULL``."""
    return _IS_NULL[truths]


def truths_of(holds: npt.NDArray[np.bool_]) -> Truths:
    """Return TRUE where it holds, FALSE elsewhere."""
    return holds.astype(np.uint8)
