"""Staged commits: records staged outside the log, and appended to it by one decision, exactly once.

A commit is a version of an application. Its attempts are staged, each in a file of its own; a
commit names the attempts that count. Files, below ``staged/`` in the store::

    <application>/<version>/<attempt>.stage   one sealed stage

The writer's journal has two states: the *intent* of a commit is the decision, which attempts, and the log's
end then; the *ledger* of an application says which versions it has committed.

The steps of a commit, each durable before the next begins:

1. the intent is written: from here on the staged commit will be completed, whatever happens;
2. the stages' records are appended through the log's normal path, block by block;
3. the log is flushed up to the last of them;
4. the ledger takes the version in, and the intent is removed: the commit is known to be done;
5. the directory of the version goes.

A start that finds an intent whose version the ledger does not hold completes it before anything is
served. Which of its records are in the log already is found there, by their unique keys, from the
offset in the intent on; the others are appended. A directory of a version that the ledger holds goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import (
    CommitDecided,
    StageExists,
    StageNotFound,
    StoreClosed,
    StoreError,
    StoreFull,
    VersionTooOld,
)
from storage.format.stage import StageHeader, safe_name
from storage.staged.application import (
    Application,
    ApplicationState,
    forget,
    load_applications,
    version_directory,
)
from storage.staged.ledger import Intent, Ledger, Outcome, needed_offset, save_intent, save_ledger
from storage.staged.open_commit import OpenCommit, remove_open
from storage.staged.stages import DIRECTORY, Stage, StageWriter
from storage.staged.staging import StagingAttempt, check_ids, failing

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.log.batches import Prepared

UPKEEP_INTERVAL_S: Final = 5.0


class StagedCommits:
    """All staged commits of a store. Methods are safe to call from several threads."""

    def __init__(
        self, engine: Engine, appender: Appender, refuse: Callable[[Prepared], Prepared], clock: Clock,
    ) -> None:  # fmt: skip
        """``refuse`` raises for what cannot be staged."""
        self.engine = engine
        self.appender = appender
        self.refuse = refuse
        self.failing = partial(failing, engine)
        self._filesystem = engine.filesystem
        self._root = engine.paths.root / DIRECTORY
        self._states = engine.states
        self._clock = clock
        self._timeout_ms = engine.config.stage_timeout_ms
        self._guard = threading.Lock()  # of the table and of the applications' open staged commits
        self._applications: dict[str, Application] = {}
        # By directory, and of all others under "": what is refused until a restart.
        self._refused: dict[str, StoreError] = {}
        self._closing = threading.Event()
        self.needed_offset = lambda: needed_offset(self._states)

    # ---- start and end

    def recover(self) -> None:
        """Complete what was decided, remove what was never acknowledged; nothing is served before.

        A staged commit that cannot be completed, for a full disk or a damaged stage, stays decided:
        ``status`` has its problem, ``resume`` and a repeated commit try again. An
        application of which the device does not give its files is refused with DeviceFailed, and all with
        DamagedLedger where the journal is damaged.
        """
        self._applications, self._refused = load_applications(
            self._filesystem, self._root, self._states
        )
        for app in list(self._applications.values()):
            for commit in list(app.open.values()):
                if commit.intent is not None:
                    commit.find_in_log(self.engine.log, self._states)
        self.resume()
        self.expire()

    def resume(self) -> None:
        """Try again to complete what was decided and could not be completed.

        An application of which a call is committing is left to that call.
        """
        for app in list(self._applications.values()):
            if not app.committing.acquire(blocking=False):
                continue
            try:
                self._resume(app)
            except StoreClosed:
                return
            finally:
                app.committing.release()

    def _resume(self, app: Application) -> None:
        for commit in list(app.open.values()):
            if commit.intent is None:
                continue
            try:
                self._complete(app, commit)
            except StoreClosed:
                raise
            except (StoreError, OSError) as error:
                commit.problem = str(error)

    def expire(self) -> None:
        """Remove stages that were not committed in time, and one-off applications as old."""
        before_ms = self._clock.now_ms() - self._timeout_ms
        for app in list(self._applications.values()):
            with self._guard:
                if app.committing.locked():
                    continue
                for commit in list(app.open.values()):
                    if commit.intent is not None:
                        continue
                    for stage in list(commit.stages.values()):
                        if stage.header.created_ms < before_ms:
                            self._drop(commit, stage)
                    self._drop_if_empty(app, commit)
                last = app.ledger.last
                if app.open or not (
                    last is None or (app.ledger.one_off and last.committed_ms < before_ms)
                ):
                    continue
                with suppress(StoreFull, OSError):  # it is forgotten the next time
                    forget(self._filesystem, self._states, app)
                    del self._applications[app.ledger.app_id]

    def keep_up(self) -> None:
        """Do both. What fails is tried again the next time; ``status`` has the problem of a commit."""
        with suppress(StoreError, OSError):
            self.resume()
            self.expire()

    def close(self) -> None:
        """Stop commits under way between two blocks; the next start completes them."""
        self._closing.set()
        for app in list(self._applications.values()):
            with app.committing:
                pass

    # ---- staging

    def stage(
        self, app_id: str, version: int, attempt: str, *, one_off: bool = False
    ) -> StagingAttempt | None:
        """Begin to stage an attempt; None if the commit is decided already, without it.

        ``one_off`` says that the application id is never used again: it is forgotten in time.
        Raises InvalidMessage, StageExists, VersionTooOld, DamagedLedger, StoreFull, StoreFailed.
        """
        check_ids(app_id, version, (attempt,))
        self._check_open()
        created_ms = self._clock.now_ms()
        header = StageHeader(
            app_id=app_id, version=version, attempt=attempt, created_ms=created_ms, one_off=one_off
        )
        with self._guard, self.failing():
            app = self._application(app_id, one_off=one_off)
            self._check_version(app, version)
            commit = app.open.get(version)
            if app.ledger.holds(version) or (commit and commit.intent):
                return None
            if commit is None:
                commit = self._open(app, version)
            if attempt in commit.stages or attempt in commit.staging:
                raise StageExists(app_id, version, attempt)
            writer = StageWriter(self._filesystem, commit.directory, header)
            commit.staging.add(attempt)
        return StagingAttempt(self, app, writer)

    def sealed(self, app: Application, stage: Stage) -> None:
        """Add a sealed stage."""
        header = stage.header
        with self._guard:
            commit = app.open.get(header.version)
            if commit is None or commit.intent is not None:
                # Decided without it meanwhile: its directory goes, or has gone, with it inside.
                with suppress(OSError):
                    self._filesystem.unlink(stage.path)
                return
            commit.staging.discard(header.attempt)
            commit.stages[header.attempt] = stage

    def given_up(self, app: Application, writer: StageWriter) -> None:
        """Discard a stage; a sealed one too, while no commit may name it: then it goes in time."""
        header, is_free = writer.header, app.committing.acquire(blocking=False)
        try:
            with self._guard:
                writer.discard()
                commit = app.open.get(header.version)
                if commit is not None:
                    commit.staging.discard(header.attempt)
                    if is_free and (stage := commit.stage_of(header)) is not None:
                        self._drop(commit, stage)
                    self._drop_if_empty(app, commit)
        finally:
            if is_free:
                app.committing.release()

    # ---- deciding

    def commit(
        self, app_id: str, version: int, attempts: Sequence[str], *, one_off: bool = False
    ) -> tuple[Outcome | None, bool]:
        """Append the attempts' records in the order named; return the outcome, and whether an earlier
        call's.

        On return they are durable, whatever the flush mode. Of a version that is committed already
        nothing is looked at: the outcome is the first commit's, None where it is no longer known. One
        that is decided and not completed is completed as it was decided.

        Raises InvalidMessage, StageNotFound, TopicNotFound, QueueNotFound, DamagedStage,
        VersionTooOld and DamagedLedger with nothing decided; StoreFull, StoreBusy, OSError and StoreClosed
        also after the decision, when a repeated commit, or the next start, completes it; StoreFailed.
        """
        check_ids(app_id, version, attempts)
        self._check_open()
        while True:
            with self._guard, self.failing():
                app = self._application(app_id, one_off=one_off)
            with app.committing:
                # One that expired in between is out of the table: what it learns would be lost.
                if self._applications.get(app_id) is app:
                    return self._commit(app, version, attempts)

    def _commit(
        self, app: Application, version: int, attempts: Sequence[str]
    ) -> tuple[Outcome | None, bool]:
        self._check_open()
        if app.ledger.holds(version):
            return app.ledger.outcome_of(version), True
        self._check_version(app, version)
        with self._guard, self.failing():
            commit = app.open.get(version) or self._open(app, version)
        if commit.intent is None:
            self._decide(app, commit, attempts)
        return self._complete(app, commit), False

    def _decide(self, app: Application, commit: OpenCommit, attempts: Sequence[str]) -> None:
        with self._guard:
            try:
                stages = [commit.stages[attempt] for attempt in attempts]
            except KeyError as error:
                self._drop_if_empty(app, commit)
                attempt = str(error.args[0])
                raise StageNotFound(app.ledger.app_id, commit.version, attempt) from None
        for stage in stages:
            for topic, queue_id in stage.seal.queues:
                self.appender.check_queue((topic.encode(), queue_id))
            stage.check()
        intent = Intent(
            app_id=app.ledger.app_id,
            version=commit.version,
            one_off=app.ledger.one_off,
            attempts=tuple(attempts),
            log_offset=self.engine.log.appended_offset,
        )
        with self.failing():
            save_intent(self._states, intent)
        with self._guard:
            commit.decide(intent, stages)

    def _complete(self, app: Application, commit: OpenCommit) -> Outcome:
        outcome = commit.append_rest(self.appender, self._clock, self._check_going_on)
        flusher = self.engine.flusher
        while outcome.record_count:
            flusher.hurry()
            if flusher.wait(outcome.end_commit_offset, 0.1):
                break
            self._check_going_on()
        ledger = app.ledger.with_committed(outcome)
        with self.failing():
            save_ledger(self._states, ledger, commit.version)
        with self._guard:
            app.ledger = ledger
            app.open.pop(commit.version, None)
        # What is left of the directory after a failure here goes at the next start.
        with suppress(OSError):
            remove_open(self._filesystem, commit.directory)
        return outcome

    def abort(self, app_id: str, version: int, attempts: Sequence[str] | None) -> int:
        """Remove staged attempts, all of the staged commit's with None; return how many there were.

        Attempts that are not known are ignored. Raises CommitDecided, DamagedLedger.
        """
        check_ids(app_id, version, attempts or ())
        self._check_open()
        app = self._applications.get(app_id)
        if app is None:
            self._check_readable(self._root / safe_name(app_id))
            return 0
        with app.committing, self._guard:
            commit = app.open.get(version)
            if app.ledger.holds(version) or (commit and commit.intent):
                raise CommitDecided(app_id, version)
            if commit is None:
                return 0
            named = list(commit.stages) if attempts is None else attempts
            stages = [commit.stages[name] for name in named if name in commit.stages]
            for stage in stages:
                self._drop(commit, stage)
            self._drop_if_empty(app, commit)
            return len(stages)

    def status(self) -> list[ApplicationState]:
        """Return every application with its open staged commits; first those that are refused."""
        refused = [
            ApplicationState(app_id=name, last_version=-1, last=None, open=(), problem=str(error))
            for name, error in sorted(self._refused.items())
            if name
        ]
        with self._guard:
            return refused + [
                ApplicationState(
                    app_id=app_id,
                    last_version=app.ledger.last_version,
                    last=app.ledger.last,
                    open=tuple(commit.state() for _, commit in sorted(app.open.items())),
                )
                for app_id, app in sorted(self._applications.items())
            ]

    # ---- shared

    def _application(self, app_id: str, *, one_off: bool) -> Application:
        app = self._applications.get(app_id)
        if app is None:
            directory = self._root / safe_name(app_id)
            self._check_readable(directory)
            self._filesystem.make_directory(directory)
            app = Application(directory, Ledger(app_id=app_id, one_off=one_off))
            self._applications[app_id] = app
        return app

    def _check_readable(self, directory: Path) -> None:
        error = self._refused.get(directory.name) or self._refused.get("")
        if error is not None:
            raise type(error)(str(error)) from error

    def _open(self, app: Application, version: int) -> OpenCommit:
        directory = version_directory(app.directory, version)
        self._filesystem.make_directory(directory)
        commit = app.open[version] = OpenCommit(self._filesystem, directory, version)
        commit.app_id = app.ledger.app_id
        return commit

    def _drop(self, commit: OpenCommit, stage: Stage) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.unlink(stage.path)
        commit.stages.pop(stage.header.attempt, None)

    def _drop_if_empty(self, app: Application, commit: OpenCommit) -> None:
        if commit.intent is None and not commit.stages and not commit.staging:
            app.open.pop(commit.version, None)
            with suppress(OSError):
                self._filesystem.remove_directory(commit.directory)

    def _check_version(self, app: Application, version: int) -> None:
        if app.ledger.is_forgotten(version):
            raise VersionTooOld(app.ledger.app_id, version, app.ledger.floor)

    def _check_open(self) -> None:
        self.appender.check_open()
        self._check_going_on()

    def _check_going_on(self) -> None:
        if self._closing.is_set():
            raise StoreClosed("the store is closing; the next start completes the staged commit")
