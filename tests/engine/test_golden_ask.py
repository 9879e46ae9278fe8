"""Our answers to every question that a broker was asked are the broker's own."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from golden import ASKED, golden_answers, golden_questions, golden_spec, golden_store

from storage import offline


@pytest.mark.parametrize("name", ASKED)
def test_answers_are_the_brokers(name: str) -> None:
    questions = golden_questions(name)
    ours = list(offline.ask(golden_store(name), questions, golden_spec(name)))
    for our, broker in zip(ours, golden_answers(name), strict=True):
        assert json.dumps(our["answer"]) == json.dumps(broker["answer"]), broker["question"]
        assert our["question"] == broker["question"]


def test_every_kind_of_question_is_among_those_asked() -> None:
    kinds = Counter(question["kind"] for name in ASKED for question in golden_questions(name))
    assert min(kinds[kind] for kind in ("get", "key", "offsetByTime", "id", "offset")) > 100


def test_a_question_nobody_understands_is_an_error_of_its_own() -> None:
    questions = [
        {"kind": "weather"},
        {"kind": "get"},
        {"kind": "minOffset", "topic": "fifo", "queue": 0},
    ]
    answers = [line["answer"] for line in offline.ask(golden_store("features"), questions)]
    assert answers == [
        {"error": "IllegalArgumentException"},
        {"error": "KeyError"},
        {"offset": 0},
    ]
