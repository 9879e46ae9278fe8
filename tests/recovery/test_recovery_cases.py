"""The tables of recovery: every combination of facts has exactly one outcome."""

from itertools import product

import pytest

from storage.view.log.recovery_cases import (
    END_CASES,
    SCAN_CASES,
    START_CASES,
    DirectoryState,
    EndDecision,
    LogEnd,
    Start,
    StopDecision,
    Stopped,
    decide_end,
    decide_start,
    decide_stop,
)


def matching(cases, facts):
    return [
        outcome
        for pattern, outcome in cases
        if all(want is None or want == fact for want, fact in zip(pattern, facts, strict=True))
    ]


@pytest.mark.parametrize("facts", list(product((False, True), repeat=len(DirectoryState._fields))))
def test_every_directory_has_exactly_one_start(facts):
    assert len(matching(START_CASES, facts)) == 1


@pytest.mark.parametrize("facts", list(product((False, True), repeat=len(Stopped._fields))))
def test_every_stop_of_the_scan_has_exactly_one_verdict(facts):
    assert len(matching(SCAN_CASES, facts)) == 1


@pytest.mark.parametrize("facts", list(product((False, True), repeat=len(LogEnd._fields))))
def test_every_end_of_the_scan_has_exactly_one_decision(facts):
    assert len(matching(END_CASES, facts)) == 1


def test_the_log_goes_on_above_only_where_a_file_is_gone_that_something_points_into():
    for there, durable, stated, queued in product((False, True), repeat=4):
        found = LogEnd(file_there=there, durable=durable, stated=stated, queued=queued)

        is_lost = not there and (durable or stated or queued)
        assert (decide_end(found) is EndDecision.ABOVE) == is_lost
        assert (decide_end(found) is EndDecision.AFTER) == (there and durable)


def test_every_outcome_is_used():
    assert {outcome for _, outcome in END_CASES} == set(EndDecision)
    assert {outcome for _, outcome in START_CASES} == set(Start)
    assert {outcome for _, outcome in SCAN_CASES} == set(StopDecision)


def test_queues_without_a_log_are_never_taken_for_an_empty_store():
    """A broker deletes the queues when the log is not there, as with a mount that failed."""
    for slot, inside, agree, clean in product((False, True), repeat=4):
        found = DirectoryState(
            log=False, queues=True, slot=slot, inside=inside, agree=agree, clean=clean
        )

        assert decide_start(found) is Start.REFUSE


def test_only_a_trusted_slot_that_log_and_queues_bear_out_spares_the_full_scan():
    for queues, slot, inside, agree, clean in product((False, True), repeat=5):
        found = DirectoryState(
            log=True, queues=queues, slot=slot, inside=inside, agree=agree, clean=clean
        )

        assert (decide_start(found) is Start.FULL) == (not (slot and inside and agree))


def test_damage_before_an_intact_record_ends_the_log_only_where_nothing_was_promised():
    for blank, adjacent, unwritten in product((False, True), repeat=3):
        decision = decide_stop(
            Stopped(blank=blank, intact_follows=True, adjacent=adjacent, unwritten=unwritten)
        )

        may_end = unwritten and not (blank and adjacent)
        assert (decision is StopDecision.CUT) == may_end
