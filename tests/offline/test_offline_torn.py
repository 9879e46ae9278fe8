"""Damaged stores: all that is intact on disk is served, and nothing that can be seen to be damaged."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ask.answers import ask
from golden import TORN, golden_store, torn_dumps
from recovered_copy import recovered_copy
from steps_to_try import steps_to_try

from storage import offline

NO_CHECKSUM = {"flip-last-properties", "flip-last-queue-offset"}
"""One record is served though a bit of it flipped: no checksum of the broker's covers that bit."""

DAMAGED_IN_QUEUE = {
    "flip-near-end-body": ("orders", 3, 403, "the body does not match its CRC"),
    "flip-early-body": ("payments", 1, 10, "the body does not match its CRC"),
    "flip-early-magic": ("payments", 1, 10, "the magic number is not a record's"),
}
"""Records with intact ones behind them keep their queue offset and are reported in their place."""

TORN_TAIL = {
    "torn-last-record": 1, "cut-length": 1, "zeroed-tail": 5, "flip-last-body": 1,
    "flip-last-magic": 1, "no-abort-torn": 1,
}  # fmt: skip
"""Records at the end with nothing intact behind them: the log ends before them, as with a broker."""

UNLIKE_THE_BROKER = {
    "flip-near-end-body": "a broker drops 238 intact records behind the damaged one",
    "flip-early-body": "a broker serves the damaged record",
    "flip-early-magic": "a broker hands out bytes that no client can decode",
    "no-consumequeue": "a broker rebuilds queues from its recovery start only: 1,279 records unserved",
    "lost-first-consumequeue-file": "a broker begins the queue at its next file: 300 records unserved",
    "short-consumequeue-file": "a broker refuses to start",
    "short-commitlog-file": "a broker refuses to start",
}
"""Variants whose set of served messages differs from the broker's, and how the broker's is worse."""

Dump = Callable[[str], list[dict[str, Any]]]
Served = dict[int, str]  # commit offset -> CRC of the record's bytes


def stored() -> Served:
    """What the broker had stored before anything was damaged."""
    return {
        line["commitLogOffset"]: line["recordCrc32"]
        for line in torn_dumps()["as-left"]
        if line["type"] == "message"
    }


def sizes() -> dict[int, int]:
    return {
        line["commitLogOffset"]: line["size"]
        for line in torn_dumps()["as-left"]
        if line["type"] == "message"
    }


def intact_on_disk(directory: Path) -> Served:
    """Stored records whose bytes are still there, read without any of the engine."""
    data = {int(path.name): path.read_bytes() for path in (directory / "commitlog").iterdir()}
    length = sizes()
    found = {}
    for offset, crc in stored().items():
        start = offset - offset % 262_144
        record = data.get(start, b"")[offset - start :][: length[offset]]
        if len(record) == length[offset] and f"{zlib.crc32(record):08x}" == crc:
            found[offset] = crc
    return found


def served(lines: list[dict[str, Any]]) -> Served:
    return {
        line["commitLogOffset"]: line["recordCrc32"]
        for line in lines
        if line["type"] == "message" and "undecodable" not in line
    }


@pytest.fixture(name="our_dump")
def _our_dump(tmp_path: Path) -> Dump:
    """The dump of a variant after a recovery."""

    def dump(name: str) -> list[dict[str, Any]]:
        return list(offline.dump(recovered_copy(golden_store("torn") / name, tmp_path)))

    return dump


@pytest.mark.parametrize("name", steps_to_try(list(TORN), 3, start=2))
def test_every_intact_record_is_served_and_damage_reported(name: str, our_dump: Dump) -> None:
    """Three claims of one dump: what is served, how that differs from the broker, what is damaged."""
    ours = our_dump(name)
    check_served(name, ours)
    check_differences(name, ours)
    check_damage(name, [line for line in ours if line["type"] == "damaged"])


def check_served(name: str, ours: list[dict[str, Any]]) -> None:
    """All that is intact on disk, and no other except where no checksum covers it."""
    intact = intact_on_disk(golden_store("torn") / name)
    assert intact.items() <= served(ours).items()
    others = served(ours).items() - intact.items()
    assert len(others) == (1 if name in NO_CHECKSUM else 0)
    assert not [line for line in ours if line["type"] == "unqueued"]


def check_differences(name: str, ours: list[dict[str, Any]]) -> None:
    """Only the listed variants differ from the broker's dump."""
    broker = torn_dumps()[name]
    if name in UNLIKE_THE_BROKER:
        assert (served(ours) == served(broker)) == (name == "flip-early-magic")
        return
    assert served(ours) == served(broker)
    assert [line for line in ours if line["type"] == "queue"] == [
        line for line in broker if line["type"] == "queue"
    ]


def check_damage(name: str, damaged: list[dict[str, Any]]) -> None:
    """Damage with intact records after it has a line of its own, in its place."""
    if name in DAMAGED_IN_QUEUE:
        (line,) = damaged
        assert (line["topic"], line["queueId"], line["queueOffset"], line["reason"]) == (
            DAMAGED_IN_QUEUE[name]
        )
    elif name == "lost-middle-commitlog-file":
        lost = range(786_432, 786_432 + 262_144)
        assert {line["commitLogOffset"] for line in damaged} == stored().keys() & lost
        assert {line["reason"] for line in damaged} == {"its part of the commit log is gone"}
    else:
        assert damaged == []


def end_of_log(lines: list[dict[str, Any]]) -> int:
    return int(next(line["end"] for line in lines if line["type"] == "commitlog"))


@pytest.mark.parametrize("name", TORN_TAIL)
def test_a_torn_tail_is_cut(name: str, our_dump: Dump) -> None:
    ours = our_dump(name)
    assert len(stored()) - len(served(ours)) == TORN_TAIL[name]
    assert end_of_log(ours) == end_of_log(torn_dumps()[name])


def test_an_old_record_after_the_end_is_not_taken_for_the_end(our_dump: Dump) -> None:
    """A broker accepts it: it does not compare a record's own commit offset with its place."""
    ours = end_of_log(our_dump("stale-tail"))
    assert (ours, end_of_log(torn_dumps()["stale-tail"])) == (1_530_691, 1_530_994)


@pytest.mark.parametrize("name", ["no-index", "garbage-checkpoint", "no-consumequeue"])
def test_every_key_is_findable_whatever_was_lost(name: str) -> None:
    """A broker leaves older keys unfindable where it does not rebuild from the log's start."""
    messages = [m for m in torn_dumps()["as-left"] if m["type"] == "message"][::40]
    questions = [
        {
            "kind": "key", "topic": m["topic"], "key": m["properties"]["UNIQ_KEY"],
            "max": 32, "begin": 0, "end": 2**63 - 1,
        }
        for m in messages
        if "UNIQ_KEY" in m["properties"]
    ]  # fmt: skip
    answers = ask(golden_store("torn") / name, questions)
    found = [set(line["answer"]["commitLogOffsets"]) for line in answers]
    wanted = [m["commitLogOffset"] for m in messages if "UNIQ_KEY" in m["properties"]]
    assert len(wanted) > 50
    assert all(offset in offsets for offset, offsets in zip(wanted, found, strict=True))
