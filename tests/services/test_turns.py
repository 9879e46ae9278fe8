"""Turns of threads are short for as long as a large call is under way, and no longer."""

from __future__ import annotations

import sys

import pytest

from services.writer.large_calls import SHORT_TURN_S, ShortTurns


def interval_s() -> float:
    return round(sys.getswitchinterval(), 6)


def test_turns_are_short_until_the_last_one_leaves() -> None:
    usual_s, turns = interval_s(), ShortTurns()
    with turns:
        with pytest.raises(ZeroDivisionError), turns:
            assert interval_s() == SHORT_TURN_S
            raise ZeroDivisionError
        assert interval_s() == SHORT_TURN_S
    assert interval_s() == usual_s
