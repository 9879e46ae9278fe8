"""Our dump of every store a broker wrote is the broker's own, line for line and field for field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN, KILLED, golden_dump, golden_spec, golden_store
from recovered_copy import recovered_copy

from storage import offline

KINDS = frozenset(
    (
        "topic",
        "consumerOffsets",
        "delayOffsets",
        "groups",
        "queue",
        "message",
        "gap",
        "unqueued",
        "commitlog",
        "index",
    )
)
"""Line kinds that a store tells without a running broker."""

REBUILT_INDEX_NAMES = {"killed": 1, "poolkilled": 1, "syncflushkilled": 1}
"""The one difference, and in how many index lines: after a kill the unfinished index file is made
again, and a file's name is the moment it was created."""


def our_lines(directory: Path, spec: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The dump as it would be read back from JSON; key order is kept."""
    return [json.loads(json.dumps(line)) for line in offline.dump(directory, spec)]


EXPIRED = {"cleaned": {"topic": "orders", "queueId": 3}}
"""The queue whose first file is wholly expired: a broker takes 0 for its minimum, and then finds gaps."""
EXPIRED_BEGIN = {"minOffset": 180, "minLogicOffset": 3600}


def broker_lines(name: str) -> list[dict[str, Any]]:
    lines = [line for line in golden_dump(name) if line["type"] in KINDS]
    if name not in EXPIRED:
        return lines
    of_queue = [line for line in lines if line.items() >= EXPIRED[name].items()]
    gaps = [line for line in of_queue if line["type"] == "gap"]
    assert gaps[-1]["nextBeginOffset"] == EXPIRED_BEGIN["minOffset"]
    return [
        {**line, **EXPIRED_BEGIN} if line in of_queue and line["type"] == "queue" else line
        for line in lines
        if line not in gaps
    ]


def in_order(line: dict[str, Any]) -> str:
    """The line as text, so that the order of its fields counts, too."""
    return json.dumps(line, ensure_ascii=False)


@pytest.mark.parametrize("name", CLEAN)
def test_dump_of_a_cleanly_stopped_store_is_the_brokers(name: str) -> None:
    ours = our_lines(golden_store(name), golden_spec(name))
    assert [in_order(line) for line in ours] == [in_order(line) for line in broker_lines(name)]


@pytest.mark.parametrize("name", KILLED)
def test_dump_of_a_killed_store_that_is_recovered_is_the_brokers(name: str, tmp_path: Path) -> None:
    """Only the names of index files that were made again differ."""
    differing = 0
    spec = golden_spec(name)
    ours = our_lines(recovered_copy(golden_store(name), tmp_path, spec), spec)
    pairs = zip(ours, broker_lines(name), strict=True)
    for our, broker in pairs:
        if our["type"] == "index" and our["name"] != broker["name"]:
            differing += 1
            our["name"] = broker["name"]
        assert in_order(our) == in_order(broker)
    assert differing == REBUILT_INDEX_NAMES[name]


@pytest.mark.parametrize("name", ["basic", "slow", "cleaned", "features"])
def test_dump_needs_no_spec(name: str) -> None:
    """The number of slots and entries of small index files is found from the files."""
    ours = our_lines(golden_store(name), {})
    assert [in_order(line) for line in ours] == [in_order(line) for line in broker_lines(name)]
