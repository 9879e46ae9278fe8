"""Any order of staging, committing, aborting, producing and restarting agrees with a plain model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from engine_store import append, check_queues_match_log, record, small_config
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from staged_records import bodies_on_disk, stage
from steps_to_try import examples_to_try

from storage.errors import CommitDecided, StageExists, StageNotFound
from storage.writer import StoreWriter

APPS = st.sampled_from(["a", "b"])
VERSIONS = st.integers(0, 4)
ATTEMPTS = st.sampled_from(["x", "y", "z"])


class Model(RuleBasedStateMachine):
    """The model: a list of what is in the log, what is staged, and which versions are committed."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.log: list[bytes] = []
        self.staged: dict[tuple[str, int], dict[str, list[bytes]]] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.number = 0

    @initialize()
    def open(self) -> None:
        self.writer = StoreWriter.open(self.root / "s", small_config())
        self.writer.create_topic("t", 2)

    def body(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    @rule(
        app=APPS, version=VERSIONS, attempt=ATTEMPTS, sizes=st.lists(st.integers(1, 3), max_size=3)
    )
    def stage(self, app: str, version: int, attempt: str, sizes: list[int]) -> None:
        key = app, version
        blocks = [[self.body() for _ in range(size)] for size in sizes]
        known = self.staged.get(key, {})
        try:
            taken = stage(self.writer.staged, app, version, attempt, blocks, queue_count=2)
        except StageExists:
            assert attempt in known
            assert key not in self.committed
            return
        assert taken == (key not in self.committed)
        assert attempt not in known
        if taken:
            self.staged.setdefault(key, {})[attempt] = [body for block in blocks for body in block]

    @rule(app=APPS, version=VERSIONS, attempts=st.lists(ATTEMPTS, unique=True, max_size=3))
    def commit(self, app: str, version: int, attempts: list[str]) -> None:
        key = app, version
        known = self.staged.get(key, {})
        try:
            outcome, old = self.writer.staged.commit(app, version, attempts)
        except StageNotFound:
            assert not set(attempts) <= set(known)
            assert key not in self.committed
            return
        assert old == (key in self.committed)
        if old:
            assert outcome is None or outcome.record_count == self.committed[key]
            return
        stored = [body for attempt in attempts for body in known[attempt]]
        assert outcome is not None
        assert outcome.record_count == len(stored)
        self.log += stored
        self.committed[key] = len(stored)
        self.staged.pop(key, None)

    @rule(
        app=APPS, version=VERSIONS, attempts=st.none() | st.lists(ATTEMPTS, max_size=3, unique=True)
    )
    def abort(self, app: str, version: int, attempts: list[str] | None) -> None:
        key = app, version
        known = self.staged.get(key, {})
        named = set(known) if attempts is None else set(attempts) & set(known)
        try:
            removed = self.writer.staged.abort(app, version, attempts)
        except CommitDecided:
            assert key in self.committed
            return
        assert key not in self.committed
        assert removed == len(named)
        for attempt in named:
            del known[attempt]

    @rule(queue_id=st.integers(0, 1))
    def produce(self, queue_id: int) -> None:
        body = self.body()
        append(self.writer, record(queue_id=queue_id, body=body))
        self.log.append(body)

    @rule()
    def restart(self) -> None:
        self.writer.close()
        self.writer = StoreWriter.open(self.root / "s", small_config())

    @invariant()
    def the_status_is_the_models(self) -> None:
        if not hasattr(self, "writer"):
            return
        found = {
            (app.app_id, each.version): {s.header.attempt: s.seal.record_count for s in each.stages}
            for app in self.writer.staged.status()
            for each in app.open
        }
        wanted = {
            key: {attempt: len(bodies) for attempt, bodies in stages.items()}
            for key, stages in self.staged.items()
            if stages
        }
        assert found == wanted

    def teardown(self) -> None:
        try:
            if hasattr(self, "writer"):
                self.writer.close()
                assert bodies_on_disk(self.root / "s") == self.log
                assert check_queues_match_log(self.root / "s") == len(self.log)
        finally:
            shutil.rmtree(self.root, ignore_errors=True)


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=examples_to_try(25, 2), stateful_step_count=30, deadline=None
)
