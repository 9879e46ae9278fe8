"""The last files of the log were removed while the store was stopped: no queue offset is given out again."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from engine_store import small_config
from steps_to_try import cases_to_try

from storage import Message, MessageStore, offline
from storage.errors import NotAStore

FILE_SIZE = 1 << 12
CONFIG = small_config(commit_log_file_size=FILE_SIZE, consume_queue_file_size=200)
QUEUES = 2
COUNT = 90


class Stored(NamedTuple):
    """A store that stopped in order, and the commit offset of each queue offset by queue."""

    directory: Path
    commit_offsets: list[dict[int, int]]

    @property
    def data_files(self) -> list[int]:
        """Where log files begin that hold records."""
        found = {
            each - each % FILE_SIZE for offsets in self.commit_offsets for each in offsets.values()
        }
        return sorted(found)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    directory = tmp_path_factory.mktemp("stored")
    commit_offsets: list[dict[int, int]] = [{} for _ in range(QUEUES)]
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("orders", QUEUES)
        for number in range(COUNT):
            result = store.put(
                Message(topic="orders", body=b"%06d" % number, queue_id=number % QUEUES)
            )
            commit_offsets[result.queue_id][result.queue_offset] = result.commit_offset
    return Stored(directory, commit_offsets)


def log_file(directory: Path, start: int) -> Path:
    return directory / "commitlog" / f"{start:020d}"


def copy_without(
    stored: Stored, tmp_path: Path, count: int, how: str, *, ahead: bool, orderly: bool = True
) -> tuple[Path, int]:
    """Copy the store without its last ``count`` log files; return where the lost ones begin.

    ``ahead``: the empty files that were made ahead of them are still there.
    """
    directory = tmp_path / "store"
    shutil.copytree(stored.directory, directory)
    lost = stored.data_files[-count:]
    for path in (directory / "commitlog").iterdir():
        if int(path.name) in lost or (not ahead and int(path.name) > lost[-1]):
            path.unlink()
    if ahead:
        for number in (1, 2):
            path = log_file(directory, lost[-1] + number * FILE_SIZE)
            path.write_bytes(bytes(FILE_SIZE))
    if not orderly:
        (directory / "abort").touch()
    if how == "no checkpoint":
        (directory / "checkpoint").unlink()
    elif how == "no queues":
        shutil.rmtree(directory / "consumequeue")
    return directory, lost[0]


def assert_goes_on_above(store: MessageStore, stored: Stored, lost_from: int) -> None:
    """Every record that is left has its queue offset; no other has one of those that are lost."""
    for queue_id, places in enumerate(stored.commit_offsets):
        assert store.max_offset("orders", queue_id) >= len(places)
        kept = [n for n, offset in places.items() if offset < lost_from]
        result = store.pull("orders", queue_id, queue_offset=0, max_messages=COUNT)
        assert list(result.queue_offsets[: len(kept)]) == kept
        assert min(result.queue_offsets[len(kept) :], default=len(places)) >= len(places)


@pytest.mark.parametrize("orderly", [True, False], ids=["clean stop", "killed"])
@pytest.mark.parametrize("ahead", cases_to_try([True, False]))
@pytest.mark.parametrize("how", ["checkpoint", "no checkpoint"])
@pytest.mark.parametrize("count", cases_to_try([2, 1]))
def test_queue_offsets_go_on_above_what_the_queues_had(
    stored: Stored,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    count: int,
    how: str,
    ahead: bool,
    orderly: bool,
) -> None:
    """At this start, at the next one, and at one that compares everything after more was stored."""
    directory, lost_from = copy_without(stored, tmp_path, count, how, ahead=ahead, orderly=orderly)
    lost_end = stored.data_files[-1] + FILE_SIZE
    with caplog.at_level(logging.ERROR), MessageStore.open(directory, CONFIG) as store:
        expected = (
            "the end of the commit log is lost: the last files of the log are gone: nothing is left of"
            f" [{lost_from}, {lost_end}); the log goes on at {lost_end}, and each queue after the last"
            " offset that its units show"
        )
        assert [record.message for record in caplog.records] == [expected]
        assert store.writer.recovered.end_offset == lost_end
        assert_goes_on_above(store, stored, lost_from)
        for queue_id, places in enumerate(stored.commit_offsets):
            message = Message(topic="orders", body=b"more", queue_id=queue_id)
            result = store.put(message)
            assert result.queue_offset == len(places)
            assert result.commit_offset >= lost_end
    for lose in ("nothing", "checkpoint"):
        if lose == "checkpoint":
            (directory / "checkpoint").unlink()
        with MessageStore.open(directory, CONFIG) as store:
            assert_goes_on_above(store, stored, lost_from)
            for queue_id, places in enumerate(stored.commit_offsets):
                assert store.max_offset("orders", queue_id) == len(places) + 1
                result = store.pull("orders", queue_id, queue_offset=len(places))
                assert list(result.queue_offsets) == [len(places)]


@pytest.mark.parametrize("orderly", [True, False], ids=["clean stop", "killed"])
@pytest.mark.parametrize("how", ["checkpoint", "no checkpoint"])
def test_a_store_whose_log_is_gone_is_refused(
    stored: Stored, tmp_path: Path, how: str, orderly: bool
) -> None:
    """A mount may be missing: nothing is touched, and the commands say so."""
    count = len(stored.data_files)
    directory, _ = copy_without(stored, tmp_path, count, how, ahead=False, orderly=orderly)
    before = {str(path) for path in directory.rglob("*")}
    with pytest.raises(NotAStore, match=r"holds queues but .* holds no log"):
        MessageStore.open(directory, CONFIG)
    with pytest.raises(NotAStore, match=r"holds queues but .* holds no log"):
        list(offline.doctor(directory))
    made = {path for path in directory.rglob("*") if str(path) not in before}
    assert made <= {directory / "lock", directory / "checkpoint"}


@pytest.mark.parametrize("ahead", [True, False], ids=["empty files left", "no file left"])
@pytest.mark.parametrize("how", ["checkpoint", "no checkpoint"])
def test_doctor_names_what_is_gone(stored: Stored, tmp_path: Path, how: str, ahead: bool) -> None:
    directory, lost_from = copy_without(stored, tmp_path, 1, how, ahead=ahead)
    findings = list(offline.doctor(directory))
    gone = [
        line for line in findings if line["severity"] == "damage" and line["begin"] == lost_from
    ]
    assert gone, json.dumps(findings, indent=1)
    assert gone[0]["command"]


@pytest.mark.parametrize("orderly", [True, False], ids=["clean stop", "killed"])
def test_a_queue_that_is_met_nowhere_else_in_the_log_goes_on_above_too(
    tmp_path: Path, orderly: bool
) -> None:
    """All its records were in the lost file; others are in the files before."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("early", 1)
        store.create_topic("late", 1)
        for _ in range(40):
            early = store.put(Message(topic="early", body=b"x" * 100))
        while (late := store.put(Message(topic="late", body=b"x" * 100))).queue_offset < 30:
            continue
    assert late.commit_offset // FILE_SIZE > early.commit_offset // FILE_SIZE
    for path in (tmp_path / "commitlog").iterdir():
        if int(path.name) > early.commit_offset:
            path.unlink()
    if not orderly:
        (tmp_path / "abort").touch()
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.put(Message(topic="late", body=b"y")).queue_offset == 31
        assert store.put(Message(topic="early", body=b"y")).queue_offset == 40
    (tmp_path / "checkpoint").unlink()
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.put(Message(topic="late", body=b"y")).queue_offset == 32
