"""Our answers to every question that a broker was asked are the broker's own."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from ask.answers import ask
from golden import ASKED, golden_answers, golden_dump, golden_questions, golden_spec, golden_store


@pytest.mark.parametrize("name", ASKED)
def test_answers_are_the_brokers(name: str) -> None:
    questions = golden_questions(name)
    ours = list(ask(golden_store(name), questions, golden_spec(name)))
    for our, broker in zip(ours, golden_answers(name), strict=True):
        assert json.dumps(our["answer"]) == json.dumps(broker["answer"]), broker["question"]
        assert our["question"] == broker["question"]


def test_every_kind_of_question_is_among_those_asked() -> None:
    kinds = Counter(question["kind"] for name in ASKED for question in golden_questions(name))
    assert min(kinds[kind] for kind in ("get", "key", "offsetByTime", "id", "offset")) > 100


def test_where_a_broker_throws_the_answer_is_the_exceptions_name() -> None:
    """As a broker answers: a negative count, a filter of separators alone, a negative size."""
    record = next(line for line in golden_dump("basic") if line["type"] == "message")
    magic, zeros = 4, 32  # in the log's first record: a negative size; half of its commit offset
    where = {"topic": record["topic"], "queue": record["queueId"], "offset": 0, "max": 1}
    questions = [
        {"kind": "key", "topic": "orders", "key": "k", "max": -1, "begin": 0, "end": 1},
        {"kind": "get", **where, "filter": "||"},
        {"kind": "offset", "offset": magic},
        {"kind": "offset", "offset": zeros},
        {"kind": "get", **where, "filter": "|"},
        {"kind": "get", **where, "filter": "\u00a0" + record["properties"].get("TAGS", "no")},
    ]
    answers = [line["answer"] for line in ask(golden_store("basic"), questions)]
    assert answers[:4] == [
        {"error": "IllegalArgumentException"},
        {"error": "Exception"},
        {"error": "IllegalArgumentException"},
        {"found": True, "size": 0, "undecodable": 0},
    ]
    assert [answer["status"] for answer in answers[4:]] == ["NO_MATCHED_MESSAGE"] * 2


def test_a_question_nobody_understands_is_an_error_of_its_own() -> None:
    questions = [
        {"kind": "weather"},
        {"kind": "get"},
        {"kind": "minOffset", "topic": "fifo", "queue": 0},
    ]
    answers = [line["answer"] for line in ask(golden_store("features"), questions)]
    assert answers == [
        {"error": "IllegalArgumentException"},
        {"error": "KeyError"},
        {"offset": 0},
    ]
