"""An attempt on its way into a stage file: checked block by block, durable when it is sealed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidBatch, InvalidMessage, StoreClosed, StoreFailed
from storage.format.stage import (
    PREFIX_SIZE,
    RECORD_COUNT_MAX,
    UNIQUE_KEY_SIZE,
    VERSION_MAX,
    StageSeal,
    id_problem,
    stage_prefix,
)
from storage.kernels.columns import UNIQ_KEY_LENGTH, UNIQ_KEY_POSITION, fields_at

if TYPE_CHECKING:
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.kernels.columns import ByteArray, Rows
    from storage.log.batches import Prepared
    from storage.staged.application import Application
    from storage.staged.stages import Stage, StageWriter

_EACH: Final = 0x0101_0101_0101_0101  # byte of eight


def check_ids(app_id: str, version: int, attempts: Iterable[str]) -> None:
    """Raise InvalidMessage unless they can name a staged commit and its attempts."""
    problem = id_problem(app_id)
    if problem:
        raise InvalidMessage("app_id", problem)
    if not 0 <= version <= VERSION_MAX:
        raise InvalidMessage("version", f"{version} is not between 0 and {VERSION_MAX}")
    seen = set()
    for attempt in attempts:
        problem = id_problem(attempt)
        if problem is None and attempt in seen:
            problem = f"{attempt!r} is named twice"
        if problem:
            raise InvalidMessage("attempt", problem)
        seen.add(attempt)


@contextmanager
def failing(engine: Engine) -> Iterator[None]:
    """Turn an OSError into the failure of the store: what a failed sync left is not known."""
    try:
        yield
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        failure = StoreFailed(f"a staged commit's files failed: {error}")
        engine.fail(failure)
        raise failure from error


class Owner(Protocol):
    """What an attempt reports its end to."""

    engine: Engine
    appender: Appender
    refuse: Callable[[Prepared], Prepared]

    def sealed(self, app: Application, stage: Stage) -> None: ...
    def given_up(self, app: Application, writer: StageWriter) -> None: ...


class StagingAttempt:
    """An attempt being staged. ``seal`` makes it durable; until then ``discard`` undoes it.

    Safe to use from several threads: who gives it up while another one writes waits for that, and leaves no
    file closed under a write. After ``discard`` the other two raise StoreClosed.
    """

    def __init__(self, owner: Owner, app: Application, writer: StageWriter) -> None:
        self._owner = owner
        self._app = app
        self._writer = writer
        header = writer.header
        self._prefix = np.frombuffer(
            stage_prefix(header.app_id, header.version, header.attempt).encode(), np.uint8
        )
        self._record_count = 0
        self._byte_count = 0
        self._queues: dict[tuple[bytes, int], None] = {}
        self._guard = threading.Lock()
        self._is_discarded = False

    def add(self, records: bytes | memoryview) -> int:
        """Check records as a batch is checked, and write them; return how many there are now.

        Raises what ``StoreWriter.append_batch`` does, and InvalidBatch for a unique key that is not
        the next of this stage.
        """
        with self._guard:
            return self._add(records)

    def _add(self, records: bytes | memoryview) -> int:
        owner = self._owner
        self._check_open()
        prepared = owner.refuse(owner.appender.prepare(records))
        owner.engine.log.check_size(prepared.placed_size)
        wrong = np.flatnonzero(
            ~are_keys_of(
                prepared.data,
                prepared.rows[: prepared.record_count],
                self._prefix,
                self._record_count,
            )
        )
        if len(wrong):
            bad = int(wrong[0])
            raise InvalidBatch(
                bad,
                f"UNIQ_KEY: must be {self._prefix.tobytes().decode()} and the record's number in the"
                f" stage, {self._record_count + bad}, as 8 hexadecimal digits",
            )
        if self._record_count + prepared.record_count > RECORD_COUNT_MAX:
            raise InvalidMessage("records", f"more than {RECORD_COUNT_MAX} in one stage")
        for key in prepared.queues:
            if key not in self._queues:
                owner.appender.check_queue(key)
                self._queues[key] = None
        with failing(self._owner.engine):
            self._writer.add(records)
        self._record_count += prepared.record_count
        self._byte_count += len(records)
        return self._record_count

    def seal(self) -> StageSeal:
        """Make the stage durable and ready to be committed. Raises StoreFull, StoreFailed."""
        with self._guard:
            return self._seal()

    def _seal(self) -> StageSeal:
        self._check_open()
        seal = StageSeal(
            record_count=self._record_count,
            byte_count=self._byte_count,
            queues=tuple((topic.decode(), queue_id) for topic, queue_id in self._queues),
        )
        try:
            with failing(self._owner.engine):
                stage = self._writer.seal(seal)
        except FileNotFoundError:
            # Decided without it meanwhile, and the directory gone: as if it came too late to begin.
            self._discard()
            return seal
        self._owner.sealed(self._app, stage)
        return seal

    def discard(self) -> None:
        """Remove what was staged; what is sealed too, unless a commit goes on meanwhile."""
        with self._guard:
            self._discard()

    def _discard(self) -> None:
        self._is_discarded = True
        self._owner.given_up(self._app, self._writer)

    def _check_open(self) -> None:
        self._owner.appender.check_open()
        if self._is_discarded:
            raise StoreClosed("the attempt was given up")


def are_keys_of(
    data: ByteArray, rows: Rows, prefix: ByteArray, first_sequence: int
) -> npt.NDArray[np.bool_]:
    """Return for each record whether its unique key is a stage's prefix and the next number from ``first_sequence`` on."""
    found: npt.NDArray[np.bool_] = rows[:, UNIQ_KEY_LENGTH] == UNIQUE_KEY_SIZE
    places = np.where(found, rows[:, UNIQ_KEY_POSITION], 0)
    wanted = _hexadecimal(np.arange(first_sequence, first_sequence + len(rows)))
    found &= fields_at(data, places + PREFIX_SIZE, ">i8") == wanted
    for number, word in enumerate(prefix.view(">u8")):
        found &= fields_at(data, places + 8 * number, ">u8") == word
    return found


def _hexadecimal(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the eight capital digits of 32-bit numbers, as the numbers that their bytes are."""
    digits = numbers
    for shift, mask in ((16, 0x0000_FFFF), (8, 0x00FF_00FF), (4, 0x0F0F_0F0F)):
        digits = (digits | digits << shift) & (mask << 32 | mask)
    is_letter = (digits + 6 * _EACH >> 4) & _EACH
    return digits + ord("0") * _EACH + is_letter * (ord("A") - ord("9") - 1)
