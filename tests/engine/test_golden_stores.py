"""Stores that a real broker wrote, dumped and asked offline: line for line what the broker says.

Lines of kinds that only a running broker can print (store, file, directory) are not ours.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from golden import (
    ASKED,
    STORES,
    golden_acked,
    golden_answers,
    golden_dump,
    golden_questions,
    golden_spec,
    golden_store,
    torn_dumps,
)

from storage.offline import ask, dump

Line = dict[str, Any]
KINDS = frozenset(
    {
        "topic", "consumerOffsets", "delayOffsets", "groups", "queue", "message", "gap", "unqueued",
        "commitlog", "index",
    }
)  # fmt: skip


def broker_lines(name: str) -> list[Line]:
    return [line for line in golden_dump(name) if line["type"] in KINDS]


def with_names_on_disk(lines: list[Line], store: Path) -> list[Line]:
    """Index files that recovery makes anew are named by the clock: leave out such names."""
    directory = store / "index"
    names = {path.name for path in directory.iterdir()} if directory.exists() else set()
    return [
        {k: v for k, v in line.items() if k != "name" or v in names}
        if line["type"] == "index"
        else line
        for line in lines
    ]


def digest(directory: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.stat().st_size < 1 << 22 else "",
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", STORES)
def test_dump_is_the_brokers(name: str) -> None:
    """Every line of the broker's dump, in its order, with its fields and values; nothing written."""
    store = golden_store(name)
    before = digest(store)
    ours = list(dump(store, golden_spec(name)))
    assert with_names_on_disk(ours, store) == with_names_on_disk(broker_lines(name), store)
    assert digest(store) == before


@pytest.mark.parametrize("name", ASKED)
def test_answers_are_the_brokers(name: str) -> None:
    """Every answer of the broker, with its fields and values."""
    questions = golden_questions(name)
    answers = list(ask(golden_store(name), questions, golden_spec(name)))
    expected = golden_answers(name)
    assert [answer["question"] for answer in answers] == questions
    different = [pair for pair in zip(answers, expected, strict=True) if pair[0] != pair[1]]
    assert different == []


@pytest.mark.parametrize("name", sorted(set(ASKED) - {"defaults", "slow"}))
def test_index_sizes_need_not_be_told(name: str) -> None:
    """Without the broker's configuration the index files themselves tell how they are laid out."""
    questions = [q for q in golden_questions(name) if q["kind"] == "key"]
    answers = list(ask(golden_store(name), questions))
    expected = [a for a in golden_answers(name) if a["question"]["kind"] == "key"]
    assert answers == expected


@pytest.mark.parametrize("name", sorted(set(STORES) - {"poolkilled", "killed-recovered"}))
def test_every_acknowledged_message_is_there(name: str) -> None:
    """What the broker's producer was told had been stored is in the dump, at that place."""
    lines = [line for line in dump(golden_store(name), golden_spec(name)) if "queueOffset" in line]
    places = {line["offsetMsgId"] for line in lines if line["type"] in ("message", "unqueued")}
    begin = min(line["commitLogOffset"] for line in lines if line["type"] == "message")
    acked = [line for line in golden_acked(name) if "offsetMsgId" in line]
    assert acked
    for line in acked:
        for message_id in line["offsetMsgId"].split(","):
            assert message_id in places or int(message_id[-16:], 16) < begin


VARIANTS = sorted(torn_dumps())


@cache
def dumped_variant(variant: str) -> list[Line]:
    return list(dump(golden_store("torn") / variant, golden_spec("torn")))


INTACT = {
    line["commitLogOffset"]: line
    for line in torn_dumps()["as-left"]
    if line["type"] in ("message", "unqueued")
}
LOST = {
    "torn-last-record": 1, "cut-length": 1, "zeroed-tail": 5, "flip-last-body": 1,
    "flip-last-magic": 1, "flip-near-end-body": 1, "flip-early-body": 1, "flip-early-magic": 1,
    "no-abort-torn": 1, "lost-middle-commitlog-file": 537,
}  # fmt: skip
"""How many records of a variant are damaged themselves; all others must be served."""
UNPROTECTED = {"flip-last-properties", "flip-last-queue-offset"}
"""Variants whose damage no checksum covers and no framing tells."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_intact_record_of_a_damaged_store_is_served(variant: str) -> None:
    """Those included which the broker drops; no damaged one is served as good."""
    lines = dumped_variant(variant)
    served = {line["commitLogOffset"]: line for line in lines if line["type"] == "message"}
    wrong = [offset for offset, line in served.items() if line != INTACT.get(offset)]
    assert len(wrong) <= (variant in UNPROTECTED)
    assert len(served) == len(INTACT) - LOST.get(variant, 0)
    counts = Counter(line["type"] for line in lines)
    assert counts["unqueued"] == 0
    (log,) = (line for line in lines if line["type"] == "commitlog")
    assert log["start"] == 0
    # Of a queue the offsets go on without a break: what is not served there is named as damaged.
    for line in (line for line in lines if line["type"] == "queue"):
        offsets = [
            other["queueOffset"]
            for other in lines
            if other["type"] in ("message", "damaged")
            and (other.get("topic"), other.get("queueId")) == (line["topic"], line["queueId"])
        ]
        if variant not in UNPROTECTED and "commitlog-file" not in variant:
            assert offsets == list(range(line["minOffset"], line["maxOffset"]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_intact_record_of_a_damaged_store_is_found_by_key(variant: str) -> None:
    """Older keys too, where the broker's rebuilt index would lose them."""
    store = golden_store("torn") / variant
    lines = [line for line in dumped_variant(variant) if line["type"] == "message"]
    asked = lines[::40]
    questions = [
        {
            "kind": "key", "topic": line["topic"], "key": line["properties"]["UNIQ_KEY"],
            "max": 32, "begin": 0, "end": 2**63 - 1,
        }
        for line in asked
        if "UNIQ_KEY" in line["properties"]
    ]  # fmt: skip
    answers = list(ask(store, questions, golden_spec("torn")))
    missing = [
        line["commitLogOffset"]
        for line, answer in zip(asked, answers, strict=True)
        if line["commitLogOffset"] not in answer["answer"]["commitLogOffsets"]
    ]
    assert missing == []


BETTER_THAN_THE_BROKER = {
    "flip-near-end-body": "the records after the damaged one are kept",
    "flip-early-body": "the damaged record is named, not served, and the log's walk goes on",
    "flip-early-magic": "likewise",
    "stale-tail": "an old record behind the end is not taken for the end",
    "garbage-checkpoint": "the index is made again from the beginning",
    "no-index": "likewise",
    "no-abort-no-consumequeue": "keys that are in the index are not put in again",
    "no-consumequeue": "the queues are made again from the beginning",
    "lost-first-consumequeue-file": "the queue's first file is made again",
    "lost-middle-commitlog-file": "the log's walk goes on behind the lost file",
    "short-consumequeue-file": "the store opens",
    "short-commitlog-file": "the store opens",
}


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - set(BETTER_THAN_THE_BROKER)))
def test_dump_of_a_damaged_store_is_the_brokers_where_the_broker_is_right(variant: str) -> None:
    """Line for line; topics that a broker creates by itself are left out."""
    store = golden_store("torn") / variant
    theirs = [line for line in torn_dumps()[variant] if line["type"] in KINDS]
    ours = dumped_variant(variant)
    known = {line["topic"] for line in ours if line["type"] == "topic"}
    theirs = [line for line in theirs if line["type"] != "topic" or line["topic"] in known]
    assert with_names_on_disk(ours, store) == with_names_on_disk(theirs, store)


@pytest.mark.parametrize("variant", sorted(BETTER_THAN_THE_BROKER))
def test_what_the_broker_serves_of_a_damaged_store_is_served(variant: str) -> None:
    """Doing better never loses a message that the broker still had, but for damaged ones."""
    theirs = {
        line["commitLogOffset"]: line
        for line in torn_dumps()[variant]
        if line["type"] == "message" and line == INTACT.get(line.get("commitLogOffset"))
    }
    lines = dumped_variant(variant)
    ours = {line["commitLogOffset"]: line for line in lines if line["type"] == "message"}
    assert {offset: ours.get(offset) for offset in theirs} == theirs
