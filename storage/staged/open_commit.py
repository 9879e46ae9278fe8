"""One staged commit under way: its stages, its decision, and how far it is in the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.errors import DamagedStage, StoreBusy, TopicNotFound
from storage.format.stage import DIGITS, PREFIX_SIZE, SEQUENCE_SIZE, UNIQUE_KEY_SIZE
from storage.kernels.columns import POSITION, SIZE, UNIQ_KEY_LENGTH, UNIQ_KEY_POSITION, fields_at
from storage.log.batches import Prepared
from storage.staged.ledger import Intent, Outcome, save_intent
from storage.staged.stages import SUFFIX, Stage, is_sealed, read_stage
from storage.view.log.walk import RecordRun, walk_log

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.files.filesystem import FileSystem
    from storage.format.stage import StageHeader
    from storage.journal.states import StateJournal
    from storage.kernels.columns import ByteArray, Rows
    from storage.log.commit_log import CommitLog

_LOG: Final = logging.getLogger(__name__)


class OpenCommit:
    """Stages, decision and progress. The caller holds the application's lock while it completes."""

    def __init__(self, filesystem: FileSystem, directory: Path, version: int) -> None:
        self._filesystem = filesystem
        self.directory = directory
        self.version = version
        self.app_id = ""
        self.one_off = False
        self.stages: dict[str, Stage] = {}
        self.staging: set[str] = set()
        self.intent: Intent | None = None
        self.problem = ""
        self._chosen: Sequence[Stage] = ()
        self._missing: str | None = None  # an attempt that was decided on and cannot be read
        # One flag a record, stage by stage in the order named: whether it is in the log.
        self._bases: list[int] = []
        self._seen: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._begin_offset = 0
        self._end_offset = 0

    def decide(self, intent: Intent, stages: Sequence[Stage]) -> None:
        """Take the decision in; nothing of it is in the log yet."""
        self.intent = intent
        self._chosen = stages
        counts = [stage.seal.record_count for stage in stages]
        self._bases = [0, *np.cumsum(counts).tolist()][: len(counts)]
        self._seen = np.zeros(sum(counts), np.uint8)
        self._begin_offset = self._end_offset = 0

    def state(self) -> OpenCommitState:
        """Return what it is now."""
        stages = tuple(stage for _, stage in sorted(self.stages.items()))
        return OpenCommitState(self.version, self.intent is not None, self.problem, stages)

    def stage_of(self, header: StageHeader) -> Stage | None:
        """Return what was sealed under a header, while nothing is decided; another of the same id has another one."""
        stage = self.stages.get(header.attempt)
        return stage if stage is not None and stage.header is header and not self.intent else None

    def lose(self, intent: Intent, attempt: str) -> None:
        """Take in a decision which cannot be carried out: an attempt's file is lost."""
        self.intent = intent
        self._missing = attempt

    def find_in_log(self, log: CommitLog, states: StateJournal) -> None:
        """Find which records are in the log already: after a start, before anything is appended."""
        intent = self.intent
        assert intent is not None
        if self._missing is not None:
            return
        end_offset = log.appended_offset
        if intent.log_offset > end_offset:
            # A power cut left the log shorter than it was at the decision. What is appended from here
            # on lies after its present end, and is looked for from there.
            intent = self.intent = replace(intent, log_offset=end_offset)
            save_intent(states, intent)
        stages = {
            stage.prefix: range(base, base + stage.seal.record_count)
            for stage, base in zip(self._chosen, self._bases, strict=True)
        }
        for step in walk_log(log.files, intent.log_offset, end_offset):
            if isinstance(step, RecordRun):
                found = records_of_stages(step.data, step.rows, stages)
                self._seen[found] = 1
                if found:
                    self._note(step.begin_offset, step.end_offset)

    def _note(self, begin_offset: int, end_offset: int) -> None:
        if self._end_offset == 0:
            self._begin_offset = begin_offset
        self._end_offset = end_offset

    def append_rest(
        self, appender: Appender, clock: Clock, check_going_on: Callable[[], None]
    ) -> Outcome:
        """Append every record that is not in the log, in order; not flushed yet on return.

        Waits where the log is busy. Raises StoreFull, StoreFailed, what ``Stage.blocks`` and
        ``check_going_on`` raise, and may be called again.
        """
        if self._missing is not None:
            raise DamagedStage(self._missing, f"its file in {self.directory} is lost or damaged")
        for stage, base in zip(self._chosen, self._bases, strict=True):
            count = stage.seal.record_count
            if self._seen[base : base + count].all():
                continue
            number = base
            for block in stage.blocks():
                prepared = appender.prepare(block)
                seen = self._seen[number : number + prepared.record_count]
                number += prepared.record_count
                if not seen.any():
                    self._append(appender, prepared, check_going_on)
                elif not seen.all():
                    wanted = np.flatnonzero(seen == 0)
                    rest = appender.prepare(_picked(prepared, wanted))
                    self._append(appender, rest, check_going_on)
                seen[:] = 1
        self.problem = ""
        return Outcome(
            version=self.version,
            commit_offset=self._begin_offset,
            end_commit_offset=self._end_offset,
            record_count=len(self._seen),
            committed_ms=clock.now_ms(),
        )

    def _append(
        self, appender: Appender, prepared: Prepared, check_going_on: Callable[[], None]
    ) -> None:
        while True:
            check_going_on()
            try:
                commit_offset, _, _ = appender.append(
                    prepared, decided=True
                )  # whatever topics allow now
            except StoreBusy as busy:
                threading.Event().wait(busy.retry_delay_ms / 1000)
            except TopicNotFound as gone:
                # Deleted since the decision: as if just after it, and its messages with it.
                rest = _without_topic(prepared, gone.topic.encode())
                if len(rest) == 0:
                    return
                prepared = appender.prepare(rest)
            else:
                self._note(commit_offset, commit_offset + prepared.placed_size)
                return


@dataclass(frozen=True, slots=True)
class OpenCommitState:
    """One staged commit under way; ``problem`` says why a decided one is not complete. ``stages`` are by attempt."""

    version: int
    decided: bool
    problem: str
    stages: tuple[Stage, ...]


def records_of_stages(
    data: ByteArray, rows: Rows, stages: Mapping[bytes, Sequence[int]]
) -> list[int]:
    """Return the numbers, by prefix of the unique key and place in the stage, of those records that are of stages."""
    places = rows[rows[:, UNIQ_KEY_LENGTH] == UNIQUE_KEY_SIZE, UNIQ_KEY_POSITION]
    if not len(places) or not stages:
        return []
    is_known = np.isin(fields_at(data, places, f"S{PREFIX_SIZE}"), list(stages))
    found = []
    for key in fields_at(data, places[is_known], f"S{UNIQUE_KEY_SIZE}").tolist():
        numbers, digits = stages[key[:PREFIX_SIZE]], key[PREFIX_SIZE:]
        if (
            len(digits) == SEQUENCE_SIZE
            and not digits.translate(None, DIGITS)
            and int(digits, 16) < len(numbers)
        ):
            found.append(numbers[int(digits, 16)])
    return found


def _picked(prepared: Prepared, rows: npt.NDArray[np.int64]) -> bytes:
    """Return some of a batch's records, one after the other."""
    places = prepared.rows[rows][:, (POSITION, SIZE)].tolist()
    data = prepared.data.data
    return b"".join([data[position : position + size] for position, size in places])


def _without_topic(prepared: Prepared, topic: bytes) -> bytes:
    """Return a batch's records of other topics."""
    kept = [number for number, key in enumerate(prepared.queues) if key[0] != topic]
    group_of = prepared.group_of[: prepared.record_count]
    return _picked(prepared, np.flatnonzero(np.isin(group_of, kept)))


def load_open(
    filesystem: FileSystem, directory: Path, version: int, intent: Intent | None
) -> OpenCommit | None:
    """Read a staged commit's directory; None if it has no stages and is not decided.

    What was never sealed is removed, as are stages that are damaged: their records are to be staged again. Raises
    OSError for a file that the device does not give: it may be a stage that was acknowledged.
    """
    commit = OpenCommit(filesystem, directory, version)
    not_stages = []
    for entry in filesystem.list_directory(directory):
        path = directory / entry.name
        if entry.is_directory or not entry.name.endswith(SUFFIX):
            continue
        stage = read_stage(filesystem, path) if is_sealed(entry.name) else None
        if stage is not None:
            commit.stages[stage.header.attempt] = stage
            continue
        if is_sealed(entry.name):
            _LOG.error("%s is damaged: its records are to be staged again", path)
        not_stages.append(path)
    if intent is None:
        for path in not_stages:
            filesystem.unlink(path)
        if not commit.stages:
            remove_open(filesystem, directory)
            return None
        header = next(iter(commit.stages.values())).header
        commit.app_id, commit.one_off = header.app_id, header.one_off
        return commit
    commit.app_id, commit.one_off = intent.app_id, intent.one_off
    missing = [name for name in intent.attempts if name not in commit.stages]
    if missing:
        commit.lose(intent, missing[0])
    else:
        commit.decide(intent, [commit.stages[name] for name in intent.attempts])
    return commit


def remove_open(filesystem: FileSystem, directory: Path) -> None:
    """Remove a directory and the files in it; not durable, and what remains is removed later."""
    for entry in filesystem.list_directory(directory):
        with suppress(FileNotFoundError):
            if entry.is_directory:
                remove_open(filesystem, directory / entry.name)
            else:
                filesystem.unlink(directory / entry.name)
    with suppress(FileNotFoundError):
        filesystem.remove_directory(directory)
