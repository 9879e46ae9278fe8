"""What goes wrong around a decision: full disks, failed syncs, damage, topics that go, time that passes."""

from __future__ import annotations

import contextlib
import errno
import threading

import pytest
from engine_store import LOG_FILE_SIZE, check_queues_match_log, small_config
from full_filesystem import FullableFileSystem
from staged_records import bodies_on_disk, stage, staged

from storage.clock import SystemClock
from storage.errors import (
    DamagedStage,
    InvalidMessage,
    QueueNotFound,
    StoreError,
    StoreFailed,
    StoreFull,
    TopicNotFound,
    VersionTooOld,
)
from storage.files.filesystem import File
from storage.offline.doctor import doctor
from storage.staged.ledger import Ledger, Outcome
from storage.testing import SteppedWorkers
from storage.writer import StoreWriter


def _swallow(writer, *arguments):
    with contextlib.suppress(StoreError):
        writer.staged.commit(*arguments)


class Clock(SystemClock):
    """The system's clock, moved on by ``passed_ms``."""

    passed_ms = 0

    def now_ms(self):
        return super().now_ms() + self.passed_ms


def big(*numbers):
    return [b"%d " % n + b"x" * 20_000 for n in numbers]


@pytest.fixture
def filesystem():
    return FullableFileSystem()


@pytest.fixture
def writer(tmp_path, filesystem):
    with StoreWriter.open(tmp_path / "s", small_config(), filesystem=filesystem) as writer:
        writer.create_topic("t", 2)
        yield writer


def test_a_disk_that_is_full_while_the_log_grows_leaves_it_decided(writer, filesystem, tmp_path):
    """The commit is refused and not undone; repeating it appends what is missing, and only that."""
    stage(writer.staged, "app", 0, "a", [big(i, i + 1) for i in range(0, 20, 2)])
    filesystem.full = "commitlog"
    with pytest.raises(StoreFull):
        writer.staged.commit("app", 0, ["a"])
    stored = len(bodies_on_disk(tmp_path / "s"))
    assert 0 < stored < 20
    with pytest.raises(StoreFull):
        writer.staged.commit("app", 0, ["a"])
    (app,) = writer.staged.status()
    assert app.open[0].decided
    filesystem.full = ""
    outcome, old = writer.staged.commit("app", 0, ["another", "name"])
    assert (outcome.record_count, old) == (20, False)
    assert bodies_on_disk(tmp_path / "s") == big(*range(20))


def test_records_of_log_files_that_were_removed_after_the_decision_are_appended_again(tmp_path):
    """As a broker's retention may do that had the store in between; docs/durability.md says so."""
    directory, filesystem = tmp_path / "s", FullableFileSystem()
    numbers = range(50)
    with StoreWriter.open(directory, small_config(), filesystem=filesystem) as writer:
        writer.create_topic("t", 2)
        stage(writer.staged, "app", 0, "a", [big(i, i + 1) for i in numbers[::2]])
        filesystem.full = f"commitlog/{3 * LOG_FILE_SIZE:020d}"
        with pytest.raises(StoreFull):
            writer.staged.commit("app", 0, ["a"])
    before = bodies_on_disk(directory)
    min((directory / "commitlog").iterdir()).unlink()
    kept = bodies_on_disk(directory)
    assert 0 < len(kept) < len(before) < len(numbers)

    with StoreWriter.open(directory, small_config()) as writer:
        assert writer.staged.commit("app", 0, [])[1]

    wanted = big(*numbers)
    lost = [body for body in wanted if body in before and body not in kept]
    assert bodies_on_disk(directory) == kept + lost + wanted[len(before) :]


@contextlib.contextmanager
def refused(monkeypatch, writer, kind, error):
    """Let the journal take no state of a kind."""
    states = writer._engine.states
    put = states.put

    def refuse(changes):
        if any(name.startswith(kind) and state for name, state in changes.items()):
            raise error
        put(changes)

    with monkeypatch.context() as patch:
        patch.setattr(states, "put", refuse)
        yield


def test_a_disk_that_is_full_for_the_ledger_stores_nothing_twice(writer, monkeypatch, tmp_path):
    stage(writer.staged, "app", 0, "a", [big(1)])
    with refused(monkeypatch, writer, "ledger", StoreFull("no space left")):
        for _ in range(2):
            with pytest.raises(StoreFull):
                writer.staged.commit("app", 0, ["a"])
    writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path / "s") == big(1)


def test_a_disk_that_is_full_before_the_decision_decides_nothing(writer, monkeypatch, tmp_path):
    stage(writer.staged, "app", 0, "a", [big(1)])
    with (
        refused(monkeypatch, writer, "intent", StoreFull("no space left")),
        pytest.raises(StoreFull),
    ):
        writer.staged.commit("app", 0, ["a"])
    assert writer.staged.abort("app", 0, None) == 1
    assert bodies_on_disk(tmp_path / "s") == []


def test_a_full_disk_refuses_a_stage_and_keeps_nothing_of_it(
    writer, filesystem, tmp_path, monkeypatch
):
    def refuse(file, data, position):
        if ".stage" in str(file.path) and len(data) > 1000:
            raise StoreFull("no space left")
        pwrite(file, data, position)

    pwrite = File.pwrite
    monkeypatch.setattr(File, "pwrite", refuse)
    staging = writer.staged.stage("app", 0, "a")
    with pytest.raises(StoreFull):
        staging.add(staged("app", 0, "a", big(1)))
    staging.discard()
    assert not list((tmp_path / "s").rglob("*.stage"))
    assert writer.status().writable


@pytest.mark.parametrize("name", [".stage", "intent", "ledger"])
def test_a_failed_sync_of_a_stage_or_a_state_ends_writing_until_a_restart(
    tmp_path, monkeypatch, name
):
    directory = tmp_path / "s"
    writer = StoreWriter.open(directory, small_config())
    writer.create_topic("t", 2)
    stage(writer.staged, "app", 0, "a", [big(1, 2)])

    def fail(file):
        if name in str(file.path):
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    sync = File.sync_all
    with monkeypatch.context() as patch:
        patch.setattr(File, "sync_all", fail)
        error = OSError(errno.EIO, "Input/output error")
        with refused(monkeypatch, writer, name, error), pytest.raises(StoreFailed):
            if name == ".stage":
                stage(writer.staged, "app", 0, "b", [big(1)])
            writer.staged.commit("app", 0, ["a"])
        assert not writer.status().writable
        writer.close()
    with StoreWriter.open(directory, small_config()) as writer:
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(directory) == big(1, 2)


def test_topics_are_looked_at_before_the_decision(writer, tmp_path):
    stage(writer.staged, "app", 0, "a", [big(1, 2)], queue_count=2)
    writer.update_topic("t", queue_count=1)
    with pytest.raises(QueueNotFound):
        writer.staged.commit("app", 0, ["a"])
    writer.update_topic("t", queue_count=2, perm=4)
    with pytest.raises(InvalidMessage, match="perm"):
        writer.staged.commit("app", 0, ["a"])
    writer.delete_topic("t")
    with pytest.raises(TopicNotFound):
        writer.staged.commit("app", 0, ["a"])
    assert bodies_on_disk(tmp_path / "s") == []


def test_what_is_decided_is_stored_whatever_the_topics_allow_since(writer, filesystem, tmp_path):
    writer.create_topic("gone", 1)
    staging = writer.staged.stage("app", 0, "a")
    first = 0
    for topic in ("t", "gone", "t"):
        staging.add(staged("app", 0, "a", big(*range(first, first + 2)), first=first, topic=topic))
        first += 2
    staging.add(
        staged("app", 0, "a", big(6), first=6, topic="gone")
        + staged("app", 0, "a", big(7), first=7, topic="t")
    )
    staging.seal()
    filesystem.full = "commitlog"
    stage(writer.staged, "filler", 0, "a", [big(100), big(101), big(102)])
    writer.staged.commit("filler", 0, ["a"])
    with pytest.raises(StoreFull):
        writer.staged.commit("app", 0, ["a"])
    writer.delete_topic("gone")
    writer.update_topic("t", perm=4)
    filesystem.full = ""
    writer.staged.commit("app", 0, ["a"])
    found = bodies_on_disk(tmp_path / "s")
    assert found == big(100, 101, 102, 0, 1, 4, 5, 7)


def test_stages_that_nobody_commits_go_in_time_and_so_do_one_off_applications(tmp_path):
    clock = Clock()
    config = small_config(stage_timeout_ms=60_000)
    with StoreWriter.open(tmp_path / "s", config, clock=clock) as writer:
        writer.create_topic("t", 1)
        stage(writer.staged, "kept", 0, "a", [big(1)])
        writer.staged.commit("kept", 0, ["a"])
        stage(writer.staged, "kept", 1, "old", [big(2)])
        writer.staged.commit("random", 0, [], one_off=True)
        clock.passed_ms = 30_000  # what else passes is real time
        stage(writer.staged, "kept", 1, "young", [big(3)])
        writer.staged.expire()
        assert [app.app_id for app in writer.staged.status()] == ["kept", "random"]
        clock.passed_ms = 61_000
        writer.staged.expire()
        (app,) = writer.staged.status()
        assert [each.header.attempt for each in app.open[0].stages] == ["young"]
    clock.passed_ms = 10**9
    with StoreWriter.open(tmp_path / "s", config, clock=clock) as writer:
        (app,) = writer.staged.status()
        assert (app.last_version, app.open) == (0, ())
        assert writer.staged.commit("kept", 0, ["a"])[1]


def test_versions_with_too_many_gaps_are_refused_rather_than_guessed():
    ledger = Ledger(app_id="app")
    for version in (10, 20, 30, 31, 29):
        ledger = ledger.with_committed(outcome(version), ranges_max=2)
    assert ledger.committed == ((20, 20), (29, 31))
    assert not ledger.holds(10)
    assert ledger.is_forgotten(10)
    assert ledger.is_forgotten(15)
    assert not ledger.is_forgotten(21)


def test_a_forgotten_version_is_refused(writer):
    app = writer.staged
    app.commit("app", 100, [])
    state = app._applications["app"]
    state.ledger = Ledger(app_id="app", floor=50, committed=((100, 100),))
    with pytest.raises(VersionTooOld, match="below 50"):
        app.commit("app", 7, [])
    with pytest.raises(VersionTooOld):
        app.stage("app", 7, "a")
    assert not app.commit("app", 60, [])[1]


def outcome(version):
    return Outcome(
        version=version, commit_offset=0, end_commit_offset=0, record_count=0, committed_ms=0
    )


def test_doctor_names_what_is_open_and_what_of_it_is_lost(writer, filesystem, tmp_path):
    stage(writer.staged, "open", 0, "a", [big(1, 2)])
    stage(writer.staged, "decided", 3, "a", [big(i) for i in range(10)])
    filesystem.full = "commitlog"
    with pytest.raises(StoreFull):
        writer.staged.commit("decided", 3, ["a"])
    writer.close()

    def found():
        return [
            (line["severity"], line["message"])
            for line in doctor(tmp_path / "s")
            if "staged" in line["file"]
        ]

    decided = ("warning", "a commit was decided and is not complete; the next start completes it")
    assert sorted(found()) == [("note", "2 records are staged and not committed"), decided]
    (path,) = (tmp_path / "s" / "staged").glob("decided*/*/*.stage")
    path.unlink()
    assert ("damage", "the stage of attempt 'a', which is decided, is lost") in found()


def test_a_step_completes_what_a_full_disk_stopped(filesystem, tmp_path):
    workers = SteppedWorkers()
    with StoreWriter.open(
        tmp_path / "s", small_config(), filesystem=filesystem, workers=workers
    ) as writer:
        writer.create_topic("t", 2)
        stage(writer.staged, "app", 0, "a", [big(i) for i in range(10)])
        filesystem.full = "commitlog"
        with pytest.raises(StoreFull):
            writer.staged.commit("app", 0, ["a"])
        workers.step("staged")
        assert writer.staged.status()[0].open[0].decided
        filesystem.full = ""
        workers.step("staged")
        assert not writer.staged.status()[0].open
        assert writer.staged.commit("app", 0, ["a"])[1]
    assert bodies_on_disk(tmp_path / "s") == big(*range(10))


def test_a_stage_that_is_lost_after_the_decision_is_reported_and_nothing_else_stops(
    writer, filesystem, tmp_path
):
    stage(writer.staged, "app", 0, "a", [big(i) for i in range(10)])
    filesystem.full = "commitlog"
    with pytest.raises(StoreFull):
        writer.staged.commit("app", 0, ["a"])
    writer.close()
    for path in (tmp_path / "s").rglob("*.stage"):
        path.unlink()
    with StoreWriter.open(tmp_path / "s", small_config()) as again:
        (app,) = again.staged.status()
        assert "lost or damaged" in app.open[0].problem
        with pytest.raises(DamagedStage):
            again.staged.commit("app", 0, ["a"])
        stage(again.staged, "app", 1, "b", [big(99)])
        assert again.staged.commit("app", 1, ["b"])[0].record_count == 1
    (given_up,) = (tmp_path / "s" / "staged").glob("app-*/*0")
    given_up.rmdir()
    with StoreWriter.open(tmp_path / "s", small_config()) as again:
        (app,) = again.staged.status()
        assert (app.open, again.staged.needed_offset()) == ((), None)
        stage(again.staged, "app", 0, "a", [big(98)])
        assert again.staged.commit("app", 0, ["a"])[0].record_count == 1


def test_closing_stops_a_commit_between_two_blocks_and_the_next_start_completes_it(tmp_path):
    directory = tmp_path / "s"
    writer = StoreWriter.open(directory, small_config(unflushed_bytes_max=1, flush_mode="sync"))
    writer.create_topic("t", 1)
    stage(writer.staged, "app", 0, "a", [big(i) for i in range(200)])
    committing = threading.Thread(target=_swallow, args=(writer, "app", 0, ["a"]))
    committing.start()
    while writer.appended_offset == 0:
        threading.Event().wait(0.001)
    writer.close()
    committing.join()
    with StoreWriter.open(directory, small_config()) as writer:
        assert writer.staged.commit("app", 0, [])[1]
    assert bodies_on_disk(directory) == big(*range(200))
    assert check_queues_match_log(directory) == 200
