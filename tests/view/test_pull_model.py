"""Pulls against a model that is a list: any limits, any filter, any offset."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from engine_store import bodies_in
from hypothesis import given, settings
from hypothesis import strategies as st
from steps_to_try import examples_to_try

from storage import MessageStore, StoreConfig
from storage.kernels.columns import Stop
from storage.message import Message, PullStatus
from storage.reader import StoreReader

COUNT: Final = 90
TAGS: Final = ("", "Aa", "BB", "AaAa", "BBBB", "C")  # Aa and BB collide, and so do their doubles
CONFIG: Final = StoreConfig(
    commit_log_file_size=1 << 14, consume_queue_file_size=200, index_slot_count=20,
    index_entry_count=100,
)  # fmt: skip


class Stored(NamedTuple):
    """One message of the model."""

    body: bytes
    tag: str
    size: int
    commit_offset: int


class Case(NamedTuple):
    """A store on disk, and what is in its only queue."""

    directory: Path
    messages: tuple[Stored, ...]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    directory = tmp_path_factory.mktemp("model")
    messages = []
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("t", 1)
        for n in range(COUNT):
            body, tag = b"%d " % n * (n * 7 % 60 + 1), TAGS[n * n % len(TAGS)]
            put = store.put(Message(topic="t", body=body, tag=tag))
            size = len(store.message(put.commit_offset))
            messages.append(Stored(body, tag, size, put.commit_offset))
    yield Case(directory, tuple(messages))
    shutil.rmtree(directory)


def expected(
    messages: tuple[Stored, ...], at: int, most: int, size: int, wanted: frozenset[str]
) -> tuple[list[bytes], int]:
    """Bodies and next offset of a pull. Hashes decide what counts towards the limits."""
    hashes = {tag: tag.replace("BB", "Aa") for tag in TAGS}
    served: list[bytes] = []
    count = total = 0
    while at < len(messages):
        message = messages[at]
        if count and (count >= most or total >= size or total + message.size > size):
            break
        at += 1
        if wanted and hashes[message.tag] not in {hashes[tag] for tag in wanted}:
            continue
        count += 1
        total += message.size
        if not wanted or message.tag in wanted:
            served.append(message.body)
    return served, at


@given(
    at=st.integers(0, COUNT - 1),
    most=st.integers(1, COUNT + 5),
    size=st.integers(1, 30_000),
    wanted=st.frozensets(st.sampled_from(TAGS[1:])),
)
@settings(deadline=None, max_examples=examples_to_try(300, 3))
def test_a_pull_is_what_the_model_says(
    case: Case, at: int, most: int, size: int, wanted: frozenset[str]
) -> None:
    with StoreReader.open(case.directory) as reader:
        result = reader.pull(
            "t", 0, queue_offset=at, max_messages=most, max_bytes=size,
            tag_expression="||".join(sorted(wanted)),
        )  # fmt: skip
    served, next_offset = expected(case.messages, at, most, size, wanted)
    assert (bodies_in(result.slices), result.next_offset) == (served, next_offset)
    assert (result.min_offset, result.max_offset, result.damaged) == (0, COUNT, ())
    assert result.record_count == len(served)
    assert result.status is (PullStatus.FOUND if served else PullStatus.NO_MATCHED_MESSAGE)


def test_every_stop_has_words_for_a_damaged_record() -> None:
    from storage.kernels.unit_record import DAMAGED, DAMAGED_OFFSET, DAMAGED_PLACE, DAMAGED_UNIT
    from storage.view.queues.records import damage_reason

    states = [DAMAGED + int(stop) for stop in Stop] + [DAMAGED_OFFSET, DAMAGED_PLACE, DAMAGED_UNIT]
    assert all(len(damage_reason(state)) > 10 for state in states)
