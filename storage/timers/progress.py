"""How far delayed messages were delivered, as it is kept on disk.

The writer's journal says what was pending when the log ended at ``commit_offset``; copies that the log has
after that are found by reading it. It is put there only once the log is synced that far, so it never says of
a message that it was delivered whose copy a power cut takes. Rows of pending timers are in files of
``timers/`` that are never changed (``storage.format.timer_files``). A broker reads
``config/delayOffset.json`` and ``config/timercheck``, which are written with it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from storage.engine.table_agreement import report
from storage.format.config_json import encode_config
from storage.format.consume_entry import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from storage.format.names import TIMER_TOPIC
from storage.format.store_time import HEAD_SIZE, store_time_in
from storage.format.timer_files import (
    TIMER_LOG_FILE_SIZE,
    decode_check,
    decode_rows,
    encode_check,
    encode_rows,
    out_ms,
)
from storage.tables.table_files import (
    DELAYS_FILE,
    data_version,
    delay_fields,
    delays_in,
    read_table,
    replace_table,
)
from storage.timers.blocks import TimerBlock
from storage.timers.hand_over import timer_log_file_size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from storage.engine.engine import Engine
    from storage.files.filesystem import FileSystem, ReadFileSystem
    from storage.format.timer_files import TimerCheck
    from storage.journal.states import StateJournal
    from storage.view.layout import StorePaths
    from storage.view.log.commit_log import CommitLogView

STATE: Final = "timers"  # in the writer's journal
TIMER_CHECK_FILE: Final = "timercheck"
CLOCK_SLACK_MS: Final = 60_000  # by which a broker's clock may be ahead of ours
BROKER_SLACK_MS: Final = 60_000  # a broker's progress is older than its last deliveries by less


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerProgress:
    """What was pending when the log ended at ``commit_offset``.

    ``queue_offset``: the next record of the timer topic that is not among ``blocks`` yet; ``heads``: those of the
    blocks at that time; ``levels``: the next queue offset of each delay level; ``recalled``: the recalls that
    count; ``read_ms``: the slot at which a broker would go on.
    """

    commit_offset: int
    queue_offset: int
    levels: dict[int, int]
    blocks: list[TimerBlock]
    heads: list[int] = field(default_factory=list)
    recalled: dict[int, tuple[int, int]] = field(default_factory=dict)
    read_ms: int = 0


def progress_in(
    filesystem: ReadFileSystem, directory: Path, document: dict[str, Any]
) -> TimerProgress:
    """Return the progress that a document has, with its blocks. Raises OSError, ValueError where one is damaged."""

    def block(name: str, head: int) -> TimerBlock:
        base_ms, base_offset, packed = decode_rows(filesystem.read_bytes(directory / name))
        rows = np.frombuffer(packed, ">u8").astype(np.uint64)
        return TimerBlock(rows, base_ms, base_offset, head=head, file=name)

    return TimerProgress(
        commit_offset=document["commit_offset"],
        queue_offset=document["queue_offset"],
        levels={int(level): offset for level, offset in document["levels"].items()},
        blocks=[block(name, head) for name, head in document["blocks"]],
        recalled={each: (at, until_ms) for each, at, until_ms in document["recalled"]},
    )


class HandedOverTimers(NamedTuple):
    """Where the timer log that was written for a broker ends, and how far it has the timer topic."""

    log_position: int
    queue_offset: int


class TimerProgressFiles:
    """The files of one store's progress. Used by one thread of the writer.

    ``log_file_size`` is that of the files of the broker's timer log, or of those that it had when it was last
    here: a broker with another ``mappedFileSizeTimerLog`` does not start.
    """

    def __init__(self, filesystem: FileSystem, paths: StorePaths, states: StateJournal) -> None:
        self._filesystem = filesystem
        self._root = paths.root
        self._directory = paths.timers
        self._states = states
        self._config = paths.config
        self._check_path = paths.config / TIMER_CHECK_FILE
        self._next_file = 1
        self._saved_levels: dict[int, int] | None = None
        self.log_file_size = TIMER_LOG_FILE_SIZE

    def load(
        self, now_ms: int, engine: Engine, log: CommitLogView
    ) -> tuple[TimerProgress, TimerCheck | None]:
        """Return where delivery goes on, and what a broker has delivered since our own progress. Raises OSError.

        A broker's file counts where a broker ran since our last writer, or ours is not whole: slots before its time are
        delivered, but of records from its queue offset on. It has no checksum, and drops what it says was delivered.
        """
        own, file_size = None, self.log_file_size
        if self._filesystem.exists(self._directory):
            names = [entry.name for entry in self._filesystem.list_directory(self._directory)]
            self._next_file = 1 + max((int(name) for name in names if name.isdigit()), default=0)
        document = self._states.document(STATE)
        if document is not None:
            file_size = int(document["timer_log_file_size"])
            with suppress(FileNotFoundError, ValueError):  # without its rows a broker's file counts
                own = progress_in(self._filesystem, self._directory, document)
        self.log_file_size = timer_log_file_size(self._filesystem, self._root) or file_size
        broker = None
        if (engine.broker_ran or own is None) and self._filesystem.exists(self._check_path):
            try:
                broker = decode_check(self._filesystem.read_bytes(self._check_path))
                if broker.read_ms > now_ms + CLOCK_SLACK_MS:
                    raise ValueError(f"its time, {broker.read_ms}, has not come")
            except ValueError as error:
                broker = None
                report(TIMER_CHECK_FILE, str(error))
        delays = read_table(self._filesystem, self._config, DELAYS_FILE, delays_in) or {}
        return _resumed(own, delays, broker, engine, log), broker

    def save(
        self, progress: TimerProgress, *, now_ms: int, handed_over: HandedOverTimers | None = None
    ) -> None:
        """Write all of it; durable on return.

        A broker would go on by its timer log where that was ``handed_over``. Raises StoreFull, OSError with the progress before still whole.
        """
        filesystem = self._filesystem
        filesystem.make_directory(self._directory)
        for block in progress.blocks:
            if not block.file:
                block.file = self._write_block(block)
        firsts = [block.base_offset for block in progress.blocks]
        first = min([*firsts, progress.queue_offset])
        log_position = 0
        if handed_over is not None:
            log_position, first = handed_over
        check = encode_check(
            progress.read_ms, first,
            timestamp_ms=now_ms, counter=progress.commit_offset, log_position=log_position,
        )  # fmt: skip
        document = {
            "blocks": [
                [block.file, head]
                for block, head in zip(progress.blocks, progress.heads, strict=True)
            ],
            "commit_offset": progress.commit_offset,
            "levels": {str(level): offset for level, offset in sorted(progress.levels.items())},
            "queue_offset": progress.queue_offset,
            "recalled": [[each, *recall] for each, recall in progress.recalled.items()],
            "timer_log_file_size": self.log_file_size,
        }
        self._states.put_document(STATE, document)
        filesystem.write_atomically(self._check_path, check, backup=True)
        self._save_levels(progress.levels, now_ms)
        kept = {block.file for block in progress.blocks}
        for entry in filesystem.list_directory(self._directory):
            if entry.name.isdigit() and entry.name not in kept:
                filesystem.unlink(self._directory / entry.name)

    def _write_block(self, block: TimerBlock) -> str:
        rows = block.rows.astype(">u8").tobytes()
        data = encode_rows(block.base_ms, block.base_offset, rows)
        name = f"{self._next_file:08d}"
        self._filesystem.write_atomically(self._directory / name, data, backup=False)
        self._next_file += 1
        return name

    def _save_levels(self, levels: dict[int, int], now_ms: int) -> None:
        if not levels or levels == self._saved_levels:
            return
        version = read_table(
            self._filesystem, self._config, DELAYS_FILE, lambda document: document["dataVersion"]
        )
        counter = int((version or {}).get("counter", 0)) + 1
        fields = delay_fields(dict(sorted(levels.items())), data_version(counter, 0, now_ms))
        replace_table(self._filesystem, self._config / DELAYS_FILE, encode_config(fields))
        self._saved_levels = dict(levels)


def _resumed(
    own: TimerProgress | None, delays: Mapping[int, int], broker: TimerCheck | None, engine: Engine,
    log: CommitLogView,
) -> TimerProgress:  # fmt: skip
    """Return where delivery goes on in a store; ``delays`` are a broker's next queue offsets of levels."""
    queues = engine.queues
    end = engine.recovered.end_offset
    if own is None:
        is_used = queues.known(TIMER_TOPIC, 0) is not None or any(
            queues.known(SCHEDULE_TOPIC, level) is not None for level in range(len(DELAY_LEVELS_MS))
        )
        begin = end
        if is_used:
            begin = log.min_offset if broker is None else _file_before(log, broker.read_ms)
        own = TimerProgress(commit_offset=begin, queue_offset=0, levels={}, blocks=[])
    timers_end = queues.next_offset(TIMER_TOPIC, 0)
    levels = {
        level: min(
            max(own.levels.get(level, 0), delays.get(level, 0)),
            queues.next_offset(SCHEDULE_TOPIC, level - 1),
        )
        for level in own.levels.keys() | delays.keys()
        if 1 <= level <= len(DELAY_LEVELS_MS)
    }
    blocks = [kept for block in own.blocks if (kept := _kept(block, timers_end, broker))]
    return replace(
        own, commit_offset=max(min(own.commit_offset, end), log.min_offset),
        queue_offset=min(own.queue_offset, timers_end), levels=levels, blocks=blocks,
    )  # fmt: skip


def _kept(block: TimerBlock, timers_end: int, broker: TimerCheck | None) -> TimerBlock | None:
    """Return the rows of a block that are still pending; the block itself if all are."""
    if not len(block):
        return None
    dues_ms = block.dues_ms(block.head, len(block.rows))
    offsets = block.queue_offsets(block.head, len(block.rows))
    kept = offsets < timers_end
    if broker is not None:
        kept &= (out_ms(dues_ms) >= broker.read_ms) | (offsets >= broker.queue_offset)
    if kept.all():
        return block
    return TimerBlock.of(dues_ms[kept], offsets[kept]) if kept.any() else None


def _file_before(log: CommitLogView, time_ms: int) -> int:
    """Return the start of the last file of the log that begins well before a time."""
    found = log.min_offset
    for start, *_ in log.entries:
        head = log.bytes_at(max(start, log.min_offset), HEAD_SIZE)
        if head is None or store_time_in(head) > time_ms - BROKER_SLACK_MS:
            break
        found = max(start, log.min_offset)
    return found
