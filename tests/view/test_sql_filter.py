"""SQL92 filters: what a RocketMQ broker's grammar takes, and which records it lets through."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import encode_record

from storage.errors import InvalidMessage
from storage.kernels.property_values import (
    INEXACT,
    NO_NUMBER,
    READ,
    read_decimals,
    read_integers,
)
from storage.view.filters.sql_filter import SqlFilter

NUMBER_TEXTS = st.one_of(
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"[+-]?[0-9]{0,20}\.?[0-9]{0,20}(e[+-]?[0-9]{1,4})?", fullmatch=True),
    st.text("0123456789+-.eE xdf", max_size=8),
)


def matching(expression: str, *records: Mapping[str, str]) -> list[bool]:
    """Return which records of these properties the filter lets through."""
    encoded = [
        encode_record(
            topic="t", queue_id=0, body=b"a = 'x'",
            properties_block="".join(f"{n}\x01{v}\x02" for n, v in each.items()).encode(),
        )
        for each in records
    ]  # fmt: skip
    positions = np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    found: list[bool] = SqlFilter(expression).matching(data, positions).tolist()
    return found


def matches(expression: str, **properties: str) -> bool:
    return matching(expression, properties)[0]


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        ("a = 'x'", {"a": "x"}, True),
        ("a = 'x'", {"a": "xx"}, False),
        ("a = 'x'", {}, False),
        ("a <> 'x'", {"a": "y"}, True),
        ("a <> 'x'", {}, False),  # NULL is not unequal either
        ("'x' <> a", {}, True),  # but a broker takes a NULL on the right for another value
        ("a = 'it''s'", {"a": "it's"}, True),
        ("a = b", {"a": "1", "b": "1"}, True),
        ("a = b", {"a": "1", "b": "01"}, False),
        ("a = b", {}, True),
        ("a = b", {"a": "1"}, False),
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5"}, False),
        ("a > 5", {}, False),
        ("a > 5", {"a": "5.5"}, False),  # not an integer, and only one is compared with an integer
        ("a > 5.0", {"a": "5.5"}, True),
        ("a > 5.0", {"a": " 5.5 "}, True),
        ("a > 5.", {"a": "55e-1"}, True),
        ("a > 5", {"a": "3000000000"}, False),  # 5 is an integer of 32 bits
        ("a > 5.0", {"a": "3000000000"}, True),
        ("a > 3000000000", {"a": "3000000001"}, True),
        ("a > 3000000000", {"a": "9223372036854775808"}, False),
        ("a >= -9223372036854775807", {"a": "-9223372036854775808"}, False),
        ("a < -9223372036854775807", {"a": "-9223372036854775808"}, True),
        ("5 < a", {"a": "6"}, True),
        ("5 >= a", {"a": "6"}, False),
        ("a = 7", {"a": "+007"}, True),
        ("a = -7", {"a": "-7"}, True),
        ("a = 7L", {"a": "7"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a > b", {"a": "10", "b": "x"}, False),
        ("a > 5 OR b = 'y'", {"a": "x", "b": "y"}, False),  # the left side drops the message
        ("b = 'y' OR a > 5", {"a": "x", "b": "y"}, True),
        ("NOT (a > 5)", {"a": "x"}, False),
        ("NOT (a > 5)", {"a": "3"}, True),
        ("NOT (a > 5)", {}, False),
        ("a BETWEEN 1 AND 3", {"a": "3"}, True),
        ("a BETWEEN 1 AND 3", {"a": "4"}, False),
        ("a NOT BETWEEN 1 AND 3", {"a": "4"}, True),
        ("a NOT BETWEEN 1 AND 3", {}, False),
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a IN ('x', 'y')", {"a": "z"}, False),
        ("a NOT IN ('x', 'y')", {"a": "z"}, True),
        ("a NOT IN ('x', 'y')", {}, False),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {"a": "x"}, True),
        ("a IS NULL", {"a": "x"}, False),
        ("a CONTAINS 'ell'", {"a": "hello"}, True),
        ("a NOT CONTAINS 'ell'", {"a": "hello"}, False),
        ("a NOT CONTAINS 'ell'", {}, False),
        ("a STARTSWITH 'he'", {"a": "hello"}, True),
        ("a STARTSWITH 'lo'", {"a": "hello"}, False),
        ("a ENDSWITH 'lo'", {"a": "hello"}, True),
        ("a NOT ENDSWITH 'lo'", {"a": "he"}, True),
        ("a CONTAINS ''", {"a": "hello"}, False),
        ("a = TRUE", {"a": "True"}, True),
        ("a = FALSE", {"a": "no"}, True),
        ("a = TRUE", {}, False),
        ("TRUE = a", {"a": "true"}, True),
        ("(a > 5) = TRUE", {"a": "6"}, True),
        ("(a > 5) IS NULL", {}, True),
        ("a", {"a": "true"}, False),  # a text is not TRUE
        ("TRUE", {}, True),
        ("NULL", {}, False),
        ("1 = 1 AND 2 > 1", {}, True),
        ("-a = 1", {"a": "1"}, False),
        ("+a = 1", {"a": "1"}, True),
        ("TAGS = 'red' and a>1", {"TAGS": "red", "a": "2"}, True),
        ("a = 'x' /* two\nlines */ AND b = 1 -- and the rest", {"a": "x", "b": "1"}, True),
        ("notes = 1 and orders = 2 AND $x_1 = 3", {"notes": "1", "orders": "2", "$x_1": "3"}, True),
        ("A = 'x'", {"a": "x"}, False),  # names have a case
        ("größe = 'x'", {}, None),
        ("a = 'größe' AND b CONTAINS 'ß'", {"a": "größe", "b": "Maß"}, True),
        ("NOT (a = 1 AND b = 2) OR c = 3", {"a": "1", "b": "2", "c": "4"}, False),
        ("a = 1 OR b = 2 AND c = 3", {"a": "1"}, True),
    ],
)  # fmt: skip
def test_what_an_expression_lets_through(
    expression: str, properties: dict[str, str], wanted: bool | None
) -> None:
    if wanted is None:
        with pytest.raises(InvalidMessage):
            SqlFilter(expression)
    else:
        assert matching(expression, properties)[0] is wanted


def test_many_records_at_once_are_judged_one_by_one() -> None:
    records = [{"n": str(n), "parity": "odd" if n % 2 else "even"} for n in range(100)]
    found = matching("n BETWEEN 20 AND 40 AND parity = 'odd'", *records)
    assert [n for n, good in enumerate(found) if good] == list(range(21, 40, 2))
    assert matching("n = 1") == []


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (" OR ".join(f"a = '{n}'" for n in range(984)), True),
        (" OR ".join(f"a='{n}'" for n in range(5_000)), True),
        (" AND ".join(f"a<>'{n}'" for n in range(4_000)), False),
        (" OR ".join(f"a = 1 AND a = {n}" for n in range(2_000)), False),
        ("a IN (" + ",".join(f"'{n}'" for n in range(8_000)) + ")", True),
        ("(" * 30_000 + "a = 983" + ")" * 30_000, True),
        ("NOT (a = 1 OR " * 30 + "a = 983" + ")" * 30, True),
        ("a IS NOT NULL" + " IS NOT NULL" * 90, True),
    ],
    ids=["or 984", "or", "and", "or of and", "in", "parentheses", "nested", "is not null"],
)
def test_a_long_chain_nests_nothing(expression: str, wanted: bool) -> None:
    assert matches(expression, a="983") is wanted


@pytest.mark.parametrize("expression", ["a > 5", "a = 5", "a BETWEEN 1 AND 9", "NOT (a > 5)"])
@pytest.mark.parametrize("value", ["5.5", "1700000000000", "five"])
def test_a_filter_says_once_that_values_are_not_the_numbers_it_compares(
    caplog: pytest.LogCaptureFixture, expression: str, value: str
) -> None:
    """A broker drops such a message too, and says so of each."""
    given = SqlFilter(expression)
    for _ in range(3):
        data = encode_record(
            topic="t", queue_id=0, body=b"", properties_block=f"a\x01{value}\x02".encode()
        )
        found = given.matching(np.frombuffer(data, np.uint8), np.zeros(1, np.int64))
        assert found.tolist() == [False]
    (said,) = caplog.records
    assert said.levelname == "WARNING"
    assert said.expression == expression  # type: ignore[attr-defined]


def test_of_properties_of_one_name_the_last_one_counts() -> None:
    record = encode_record(
        topic="t", queue_id=0, body=b"", properties_block=b"a\x01x\x02a\x01y\x02"
    )
    data = np.frombuffer(record, np.uint8)
    assert SqlFilter("a = 'y'").matching(data, np.zeros(1, np.int64)).tolist() == [True]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "ends at character 1, where something is missing"),
        ("a >", "ends at character 4, where something is missing"),
        ("a = 1 AND AND", "not understood at character 11: 'AND'"),
        ("contains = 1", "not understood at character 1: 'contains = 1'"),
        ("a = = 3", "character 5: '= 3'"),
        ("a = 007", "character 6: '07'"),
        ("a LIKE 'x%'", "character 3: \"LIKE 'x%'\""),
        ("a + 1 = 2", "character 3: '+ 1 = 2'"),
        ("a > 'x'", "'x' has no order"),
        ("NOT a > 5", "a condition has no order"),  # NOT comes first
        ("5", "5 is not a condition"),
        ("'x' AND a = 1", "'x' is not a condition"),
        ("a = NULL", "IS NULL"),
        ("a BETWEEN 3 AND 1", "BETWEEN 3 AND 1 holds for nothing"),
        ("1 = 'x'", "1 is not compared with 'x'"),
        ("3 IN ('x')", "IN asks for a property"),
        ("a IN ()", "character 7"),
        ("a = 9223372036854775808", "more than 64 bits"),
        ("a = 'x", "character 5"),
        ("NOT " * 16_000 + "TRUE", "nested more than 100 deep"),
        ("NOT (" * 10_000 + "TRUE" + ")" * 10_000, "nested more than 100 deep"),
        ("a > " + "-" * 1 + " -" * 30_000 + "5", "nested more than 100 deep"),
        ("TRUE" + " = TRUE" * 9_000, "nested more than 100 deep"),
        ("a" + " IS NULL" * 8_000, "nested more than 100 deep"),
        ("(a = 1 OR " * 5_000 + "a = 2" + ")" * 5_000, "nested more than 100 deep"),
        ("(" * 30_000 + "a = 1", "ends at character 30006"),
        ("x" * 65_537, "at most 65536"),
    ],
)
def test_what_is_not_understood_is_named_with_its_place(expression: str, problem: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        SqlFilter(expression)
    assert caught.value.field == "sql_expression"
    assert problem in caught.value.problem


def columns_of(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = np.frombuffer(text.encode() + b"\x02", np.uint8)
    return data, np.zeros(1, np.int64), np.array([len(text.encode())], np.int64)


@given(NUMBER_TEXTS)
def test_integers_are_read_as_python_reads_them(text: str) -> None:
    numbers, states = np.zeros((2, 1), np.int64)
    assert read_integers(*columns_of(text), numbers, states) == 0
    digits = text[1:] if text[:1] in ("+", "-") else text
    wanted = int(text) if digits.isdecimal() else None
    if wanted is None or not -(1 << 63) <= wanted < 1 << 63:
        assert states[0] == NO_NUMBER
    else:
        assert (states[0], numbers[0]) == (READ, wanted)


@given(NUMBER_TEXTS)
def test_decimals_are_read_as_python_reads_them(text: str) -> None:
    numbers, states = np.zeros(1, np.float64), np.zeros(1, np.int64)
    assert read_decimals(*columns_of(text), numbers, states) == 0
    stripped = text.strip()
    if stripped[-1:] in ("d", "f"):  # a suffix of Java's
        stripped = stripped[:-1]
    try:
        wanted = float(stripped) if stripped == stripped.strip() else None
    except ValueError:
        wanted = None
    if wanted is None:
        assert states[0] == NO_NUMBER
    elif states[0] != INEXACT:
        assert (states[0], numbers[0]) == (READ, wanted)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_compared_exactly(number: float) -> None:
    assert matches(f"a >= {abs(number)!r}", a=repr(abs(number)))
    assert not matches(f"a > {abs(number)!r}", a=repr(abs(number)))
