"""SQL92 filters, as RocketMQ's consumers write them: the grammar, and what it makes of an expression.

::

    price > 5 AND (region IN ('north', 'south') OR TAGS IS NOT NULL)
    name STARTSWITH 'a' AND level NOT BETWEEN 1 AND 3

Properties, the tag as ``TAGS``, integers, floating-point numbers, texts in quotes (two quotes for one),
TRUE, FALSE, NULL; ``= <> > >= < <=``, BETWEEN, IN, IS NULL, CONTAINS, STARTSWITH, ENDSWITH, their NOT
forms, AND, OR, NOT, which comes before a comparison. Words in any case, none of which is a property's name;
comments ``-- to the end of the line`` and ``/* so */``.
"""

from __future__ import annotations

import logging
import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from lark import Lark, Token, Transformer, Tree, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from storage.errors import InvalidMessage
from storage.kernels.property_values import CONTAINS, ENDS_WITH, EQUAL, STARTS_WITH
from storage.view.filters.property_columns import ERROR, FALSE, NULL, TRUE, PropertyColumns, Texts
from storage.view.filters.sql_conditions import (
    Condition,
    Constant,
    Order,
    all_of,
    any_of,
    conditions_equal,
    is_null,
    negation,
    number_compared,
    properties_equal,
    properties_ordered,
    property_as_condition,
    property_as_truth,
    text_found,
)

_LOG: Final = logging.getLogger(__name__)
INT64_MAX: Final = (1 << 63) - 1
FIELD: Final = "sql_expression"
LENGTH_MAX: Final = 65_536
SHOWN_MAX: Final = 200
DEPTH_MAX: Final = 100
LONG: Final = 1_024  # characters; the longest expression takes up to a second to read
CACHED_MAX: Final = 256
LONG_CACHED_MAX: Final = 16

_GRAMMAR: Final = r"""
?start: or
?or: and
    | and ("OR"i and)+ -> any_of
?and: equality
    | equality ("AND"i equality)+ -> all_of
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> unequal
    | equality "IS"i "NULL"i -> is_null
    | equality "IS"i "NOT"i "NULL"i -> is_not_null
?comparison: unary
    | comparison ">" unary -> greater
    | comparison ">=" unary -> not_less
    | comparison "<" unary -> less
    | comparison "<=" unary -> not_greater
    | comparison "BETWEEN"i unary "AND"i unary -> between
    | comparison "NOT"i "BETWEEN"i unary "AND"i unary -> not_between
    | comparison "IN"i "(" TEXT ("," TEXT)* ")" -> is_in
    | comparison "NOT"i "IN"i "(" TEXT ("," TEXT)* ")" -> is_not_in
    | comparison SEARCH TEXT -> search
    | comparison "NOT"i SEARCH TEXT -> search_not
?unary: primary
    | "+" unary -> plus
    | "-" unary -> minus
    | "NOT"i unary -> negation
?primary: TEXT -> text
    | INTEGER -> integer
    | DECIMAL -> decimal
    | "TRUE"i -> true
    | "FALSE"i -> false
    | "NULL"i -> null
    | NAME -> name
    | "(" or ")"

SEARCH.3: /(CONTAINS|STARTSWITH|ENDSWITH)(?![a-z0-9_$])/i
TEXT: /'(''|[^'])*'/
DECIMAL.2: /([0-9]+\.[0-9]*|\.[0-9]+)(E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+/i
INTEGER: /0|[1-9][0-9]*L?/i
NAME: /[a-z_$][a-z0-9_$]*/i
COMMENT: /--[^\r\n]*/ | /\/\*(.|\n)*?\*\//
%ignore /[ \t\n\r\f]+/
%ignore COMMENT
"""
_PARSER: Final = Lark(
    _GRAMMAR, parser="lalr", lexer="basic",  # a word of the grammar is never a name
    maybe_placeholders=False,
)  # fmt: skip
_SEARCHES: Final = {"CONTAINS": CONTAINS, "STARTSWITH": STARTS_WITH, "ENDSWITH": ENDS_WITH}
_MIRRORED: Final[dict[Order, Order]] = {
    operator.gt: operator.lt, operator.lt: operator.gt,
    operator.ge: operator.le, operator.le: operator.ge,
    operator.eq: operator.eq,
}  # fmt: skip


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


class NoValue:
    """A property with a minus before it: it is no number, so NULL."""


Operand: TypeAlias = Property | Number | Text | NoValue | Condition


class SqlFilter:
    """A filter made once and asked for many records.

    Raises InvalidMessage that names the place of what is not understood.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        if len(expression) > LENGTH_MAX:
            raise InvalidMessage(FIELD, f"{len(expression)} characters; at most {LENGTH_MAX}")
        builder = _Builder()
        try:
            parsed = _PARSER.parse(expression)
            depth, self.cost = _depth_and_size(parsed)
            if depth > DEPTH_MAX:
                raise InvalidMessage(FIELD, f"nested more than {DEPTH_MAX} deep")
            self._condition = _condition(builder.transform(parsed))
        except UnexpectedInput as error:
            raise InvalidMessage(FIELD, _problem(error, expression)) from None
        except VisitError as error:
            raise InvalidMessage(FIELD, str(error.orig_exc)) from None
        except ValueError as error:
            raise InvalidMessage(FIELD, str(error)) from None
        self._names = Texts(list(builder.numbers))
        self._has_told = False  # that it drops messages for what their values are

    def matching(
        self, data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which of the checked records, which begin at ``positions`` of ``data``, it lets through."""
        if not len(positions):
            return np.empty(0, np.bool_)
        columns = PropertyColumns(data, positions, self._names)
        truths = self._condition(columns)
        if not self._has_told and (truths == ERROR).any():
            self._has_told = True
            _LOG.warning(
                "an SQL filter drops messages in which what it compares with a number is not such a number",
                extra={"expression": self.expression[:SHOWN_MAX]},
            )
        return np.equal(truths, TRUE)


_short_filter = lru_cache(CACHED_MAX)(SqlFilter)
_long_filter = lru_cache(LONG_CACHED_MAX)(SqlFilter)


def sql_filter(expression: str) -> SqlFilter:
    """Return the filter of an expression; the last ones are kept."""
    return (_long_filter if len(expression) > LONG else _short_filter)(expression)


def _depth_and_size(parsed: Tree[Token]) -> tuple[int, int]:
    """Return how deep the deepest operator is and how many parts there are, counted without recursion."""
    level: list[Tree[Token]] = [parsed]
    depth = size = 0
    while level:
        depth += 1
        size += len(level)
        level = [each for tree in level for each in tree.children if isinstance(each, Tree)]
    return depth, size


def _problem(error: UnexpectedInput, expression: str) -> str:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return f"ends at character {len(expression) + 1}, where something is missing"
    at = error.pos_in_stream or 0
    return f"not understood at character {at + 1}: {expression[at : at + 20]!r}"


def _condition(operand: Operand) -> Condition:
    """Return the operand where a condition is wanted."""
    if isinstance(operand, Property):
        return property_as_condition(operand.number)
    if isinstance(operand, Number | Text | NoValue):
        raise ValueError(f"{_shown(operand)} is not a condition")
    return operand


def _shown(operand: Operand) -> str:
    if isinstance(operand, Number):
        return str(operand.value)
    if isinstance(operand, Text):
        return repr(operand.value)
    if isinstance(operand, NoValue):
        return "a property after a minus"
    return "a condition"


def _constant(holds: bool) -> Constant:
    return Constant(TRUE if holds else FALSE)


def _ordered(left: Operand, right: Operand, order: Order) -> Condition:
    """Return ``left < right`` and its like; numbers and properties alone have an order."""
    for operand in (left, right):
        if not isinstance(operand, Property | Number | NoValue):
            raise ValueError(f"{_shown(operand)} has no order")
    if isinstance(left, NoValue) or isinstance(right, NoValue):
        return Constant(NULL)
    if isinstance(left, Number) and isinstance(right, Number):
        return _constant(order(left.value, right.value))
    if isinstance(left, Property) and isinstance(right, Property):
        return properties_ordered(left.number, right.number, order)
    if isinstance(left, Property):
        return number_compared(left.number, order, cast("Number", right).value, NULL)
    number = cast("Number", left).value
    return number_compared(cast("Property", right).number, _MIRRORED[order], number, NULL)


def _equal(left: Operand, right: Operand) -> Condition:
    """Return ``left = right``: NULL where the left one is absent, FALSE where the right one is."""
    for operand in (left, right):
        if isinstance(operand, Constant) and operand.truth == NULL:
            raise ValueError("IS NULL says whether something is NULL; nothing equals it")
    if isinstance(left, NoValue) or isinstance(right, NoValue):
        return Constant(NULL)
    if isinstance(left, Property):
        return _property_equals(left.number, right, NULL)
    if isinstance(right, Property) and isinstance(left, Number | Text):
        return _property_equals(right.number, left, FALSE)
    if isinstance(left, Number | Text) or isinstance(right, Number | Text):
        if type(left) is not type(right):
            raise ValueError(f"{_shown(left)} is not compared with {_shown(right)}")
        return _constant(left == right)
    return conditions_equal(_as_truth(left), _as_truth(right))


def _as_truth(operand: Operand) -> Condition:
    return (
        property_as_truth(operand.number) if isinstance(operand, Property) else _condition(operand)
    )


def _property_equals(number: int, other: Operand, absent: int) -> Condition:
    if isinstance(other, Property):
        return properties_equal(number, other.number)
    if isinstance(other, Number):
        return number_compared(number, operator.eq, other.value, absent)
    if isinstance(other, Text):
        return text_found(number, Texts([other.value]), EQUAL, absent)
    return conditions_equal(property_as_truth(number), _condition(other))


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Makes conditions of the parsed expression, and numbers the properties that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}

    def name(self, token: Token) -> Property:
        return Property(self.numbers.setdefault(str(token), len(self.numbers)))

    def text(self, token: Token) -> Text:
        return Text(_unquoted(token))

    def integer(self, token: Token) -> Number:
        value = int(token.rstrip("lL"))
        if value > INT64_MAX:
            raise ValueError(f"{value} has more than 64 bits")
        return Number(value)

    def decimal(self, token: Token) -> Number:
        return Number(float(token))

    def true(self) -> Constant:
        return Constant(TRUE)

    def false(self) -> Constant:
        return Constant(FALSE)

    def null(self) -> Constant:
        return Constant(NULL)

    def plus(self, operand: Operand) -> Operand:
        return operand

    def minus(self, operand: Operand) -> Operand:
        if isinstance(operand, Number):
            return Number(-operand.value)
        if isinstance(operand, Property | NoValue):
            return NoValue()
        raise ValueError(f"{_shown(operand)} has no negative")

    def negation(self, operand: Operand) -> Condition:
        return negation(_condition(operand))

    def all_of(self, first: Operand, *others: Operand) -> Condition:
        return all_of((_condition(first), *map(_condition, others)))

    def any_of(self, first: Operand, *others: Operand) -> Condition:
        return any_of((_condition(first), *map(_condition, others)))

    def equal(self, left: Operand, right: Operand) -> Condition:
        return _equal(left, right)

    def unequal(self, left: Operand, right: Operand) -> Condition:
        return negation(_equal(left, right))

    def is_null(self, operand: Operand) -> Condition:
        if isinstance(operand, Number | Text):
            return Constant(FALSE)
        return Constant(TRUE) if isinstance(operand, NoValue) else is_null(_condition(operand))

    def is_not_null(self, operand: Operand) -> Condition:
        return negation(self.is_null(operand))

    def greater(self, left: Operand, right: Operand) -> Condition:
        return _ordered(left, right, operator.gt)

    def not_less(self, left: Operand, right: Operand) -> Condition:
        return _ordered(left, right, operator.ge)

    def less(self, left: Operand, right: Operand) -> Condition:
        return _ordered(left, right, operator.lt)

    def not_greater(self, left: Operand, right: Operand) -> Condition:
        return _ordered(left, right, operator.le)

    def between(self, operand: Operand, low: Operand, high: Operand) -> Condition:
        if isinstance(low, Number) and isinstance(high, Number) and high.value < low.value:
            raise ValueError(f"BETWEEN {low.value} AND {high.value} holds for nothing")
        return all_of((_ordered(operand, low, operator.ge), _ordered(operand, high, operator.le)))

    def not_between(self, operand: Operand, low: Operand, high: Operand) -> Condition:
        return any_of((_ordered(operand, low, operator.lt), _ordered(operand, high, operator.gt)))

    def is_in(self, operand: Operand, *texts: Token, is_negated: bool = False) -> Condition:
        if not isinstance(operand, Property):
            raise ValueError(f"IN asks for a property, not for {_shown(operand)}")
        wanted = Texts([_unquoted(text) for text in texts])
        return text_found(operand.number, wanted, EQUAL, NULL, is_negated=is_negated)

    def is_not_in(self, operand: Operand, *texts: Token) -> Condition:
        return self.is_in(operand, *texts, is_negated=True)

    def search(
        self, operand: Operand, word: Token, text: Token, is_negated: bool = False
    ) -> Condition:
        if not isinstance(operand, Property):
            raise ValueError(f"{word.upper()} asks for a property, not for {_shown(operand)}")
        wanted = _unquoted(text)
        if not wanted:
            return Constant(FALSE)
        how = _SEARCHES[word.upper()]
        return text_found(operand.number, Texts([wanted]), how, FALSE, is_negated=is_negated)

    def search_not(self, operand: Operand, word: Token, text: Token) -> Condition:
        return self.search(operand, word, text, is_negated=True)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")
