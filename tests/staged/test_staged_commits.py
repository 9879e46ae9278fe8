"""Staged commits: invisible until decided, then stored once, whatever is repeated."""

import pytest
from engine_store import record, small_config
from staged_records import bodies_on_disk, stage, staged

from storage.errors import (
    InvalidBatch,
    InvalidMessage,
    QueueNotFound,
    StageExists,
    StoreClosed,
    TopicNotFound,
)
from storage.writer import StoreWriter


@pytest.fixture
def writer(tmp_path):
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 4)
        yield writer


def bodies(*numbers):
    return [b"body %d" % n for n in numbers]


def test_a_commit_stores_the_named_attempts_in_order_and_nothing_else(writer, tmp_path):
    stage(writer.staged, "app", 0, "b", [bodies(3, 4)])
    stage(writer.staged, "app", 0, "loser", [bodies(9)])
    stage(writer.staged, "app", 0, "a", [bodies(1), bodies(2)])
    assert writer.appended_offset == 0
    outcome, old = writer.staged.commit("app", 0, ["a", "b"])
    assert (outcome.record_count, outcome.commit_offset, old) == (4, 0, False)
    assert outcome.end_commit_offset == writer.appended_offset == writer.status().flushed_offset
    assert bodies_on_disk(tmp_path / "store") == bodies(1, 2, 3, 4)
    assert not list((tmp_path / "store" / "staged").rglob("*.stage"))


def test_a_repeated_commit_answers_with_the_first_outcome_also_after_a_restart(tmp_path):
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "app", 5, "a", [bodies(1)])
        first, _ = writer.staged.commit("app", 5, ["a"])
        assert writer.staged.commit("app", 5, ["other"]) == (first, True)
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        assert writer.staged.commit("app", 5, ["a"]) == (first, True)
        assert not stage(writer.staged, "app", 5, "again", [bodies(1)])
    assert bodies_on_disk(tmp_path / "store") == bodies(1)


def test_stages_outlive_a_restart_and_unsealed_ones_do_not(tmp_path):
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "app", 0, "a", [bodies(1)])
        staging = writer.staged.stage("app", 0, "b")
        staging.add(staged("app", 0, "b", bodies(2)))
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        (app,) = writer.staged.status()
        assert [s.header.attempt for t in app.open for s in t.stages] == ["a"]
        assert writer.staged.commit("app", 0, ["a"])[0].record_count == 1


def test_an_attempt_is_staged_once(writer):
    stage(writer.staged, "app", 0, "a", [bodies(1)])
    with pytest.raises(StageExists):
        writer.staged.stage("app", 0, "a")
    running = writer.staged.stage("app", 0, "b")
    with pytest.raises(StageExists):
        writer.staged.stage("app", 0, "b")
    running.discard()
    assert writer.staged.stage("app", 0, "b") is not None


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", InvalidBatch),
        (record(), InvalidBatch),
        (staged("app", 0, "b", [b"x"]), InvalidBatch),
        (staged("app", 0, "a", [b"x"], first=1), InvalidBatch),
        (staged("app", 0, "a", [b"x"])[:-1], InvalidBatch),
        (staged("app", 0, "a", [b"x"], topic="unknown"), TopicNotFound),
        (staged("app", 0, "a", [b"x"] * 5, queue_count=5), QueueNotFound),
    ],
)
def test_what_is_staged_must_be_a_batch_with_the_stages_keys(writer, records, error):
    staging = writer.staged.stage("app", 0, "a")
    with pytest.raises(error):
        staging.add(records)


@pytest.mark.parametrize(
    ("app", "version", "attempt"),
    [("", 0, "a"), ("a" * 201, 0, "a"), ("a\n", 0, "a"), ("a", -1, "a"), ("a", 1 << 63, "a"), ("a", 0, "")],
)  # fmt: skip
def test_ids_have_limits(writer, app, version, attempt):
    with pytest.raises(InvalidMessage):
        writer.staged.stage(app, version, attempt)


def test_ids_never_become_paths(writer, tmp_path):
    for app, attempt in (("../../x", "../y"), ("a/b", "."), ("ä" * 200, "\U0001f600" * 200)):
        stage(writer.staged, app, 0, attempt, [bodies(1)])
        writer.staged.commit(app, 0, [attempt])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"store"}
    assert len(list((tmp_path / "store" / "staged").iterdir())) == 3


def test_an_attempt_that_was_given_up_takes_nothing_more(writer):
    attempt = writer.staged.stage("app", 0, "a")
    attempt.discard()
    with pytest.raises(StoreClosed):
        attempt.add(staged("app", 0, "a", bodies(1)))
    with pytest.raises(StoreClosed):
        attempt.seal()
    assert writer.status().writable


def test_an_attempt_that_was_sealed_for_nobody_goes_and_no_other_of_its_name(writer, tmp_path):
    first = writer.staged.stage("app", 0, "a")
    first.add(staged("app", 0, "a", bodies(1)))
    first.seal()
    first.discard()  # its caller was gone before it was answered
    assert not list((tmp_path / "store" / "staged").rglob("*.stage"))
    stage(writer.staged, "app", 0, "a", [bodies(2)])
    first.discard()
    assert writer.staged.commit("app", 0, ["a"])[0].record_count == 1
    first.discard()
    assert bodies_on_disk(tmp_path / "store") == bodies(2)
