"""The checkpoint file: how writer, indexer and readers know how far each other is.

Every position has one owner and is one aligned 8-byte word, so no process reads half of one. Live
positions, here, say what is in the page cache and move without any sync; ``durable`` has those that
outlive the machine, raised by their owner after its own sync of what they cover.

Which live position may be trusted when: the live sectors are good while the machine has not
rebooted since (``writer_is_current``), even after the writer died; after a reboot they may name bytes
that are gone, and only the durable slots count. After a broker's run on the directory neither do
(``storage.checkpoint.trust``).
"""

from __future__ import annotations

import secrets
from enum import Enum
from typing import TYPE_CHECKING, Final

from storage.checkpoint.durable_slots import DurableSlots
from storage.files.system.futex import WakeWord
from storage.format import checkpoint as layout

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import File, FileSystem

CHECKPOINT_FILE: Final = "checkpoint"

_FLAG_WRITABLE: Final = 1


class Role(Enum):
    """Who opens the file: decides which words may be stored to."""

    WRITER = "writer"
    INDEXER = "indexer"
    READER = "reader"


def _writer_position(name: str) -> int:
    return layout.WRITER_LIVE_POSITION + 8 * layout.WRITER_LIVE_WORDS.index(name)


def _indexer_position(name: str) -> int:
    return layout.INDEXER_LIVE_POSITION + 8 * layout.INDEXER_LIVE_WORDS.index(name)


class _Word:
    """A live position: one native word of the page, loaded and stored whole."""

    def __init__(self, position: int, owner: Role) -> None:
        self.index = position // 8
        self.owner = owner

    def __get__(self, checkpoint: CheckpointFile, _: type[CheckpointFile]) -> int:
        return checkpoint._words[self.index]

    def __set__(self, checkpoint: CheckpointFile, value: int) -> None:
        if checkpoint.role is not self.owner:
            raise PermissionError(f"only the {self.owner.value} stores this position")
        checkpoint._words[self.index] = value


def _writer_word(name: str) -> _Word:
    return _Word(_writer_position(name), Role.WRITER)


def _indexer_word(name: str) -> _Word:
    return _Word(_indexer_position(name), Role.INDEXER)


# The writer's words that move with every append.
_APPENDED: Final = _writer_position("appended_offset") // 8
_COMMITTED: Final = _writer_position("committed_offset") // 8
_CONFIRM: Final = _writer_position("confirm_offset") // 8
# The broker's fields, and of the writer's live sector what one session keeps.
_HEAD_SIZE: Final = _writer_position("session") + 8


class CheckpointFile:
    """The mapped page. Loads are safe from any thread; each store has one thread at a time."""

    _writer_magic = _writer_word("magic")
    _writer_boot_low = _writer_word("boot_id_low")
    _writer_boot_high = _writer_word("boot_id_high")
    writer_session = _writer_word("session")
    """Changes with every start of the writer."""
    min_commit_offset = _writer_word("min_commit_offset")
    """Start of the oldest record."""
    appended_offset = _writer_word("appended_offset")
    """End of what is appended, in the pool or the page cache."""
    committed_offset = _writer_word("committed_offset")
    """End of what is in the page cache."""
    flushed_offset = _writer_word("flushed_offset")
    """End of what is durable."""
    confirm_offset = _writer_word("confirm_offset")
    """End of what followers and readers may read."""
    dispatched_offset = _writer_word("dispatched_offset")
    """End of the records that the consume queues cover."""
    config_generation = _writer_word("config_generation")
    """Differs after every change of the topic table."""
    _writer_flags = _writer_word("flags")

    _indexer_magic = _indexer_word("magic")
    _indexer_boot_low = _indexer_word("boot_id_low")
    _indexer_boot_high = _indexer_word("boot_id_high")
    indexer_session = _indexer_word("session")
    """Changes with every start of an indexer, and whenever one goes back in the log."""
    indexed_offset = _indexer_word("indexed_offset")
    """End of the records that queries by key cover."""

    def __init__(self, file: File, role: Role, boot_id: bytes) -> None:
        self.role = role
        self.boot_id = boot_id
        self._file = file
        self._region = file.map(writable=role is not Role.READER)
        self._page = self._region.array[: layout.PAGE_SIZE]
        self._bytes = memoryview(self._page).cast("B")  # type: ignore[arg-type]
        self._words = self._bytes.cast("q")
        self._head = self._bytes[:_HEAD_SIZE]
        self._boot = self._boot_low, self._boot_high = tuple(memoryview(boot_id).cast("q"))
        self.durable = DurableSlots(self._bytes, file)
        self._writer_wake = WakeWord(self._page, _writer_position("wake_word"))
        self._indexer_wake = WakeWord(self._page, _indexer_position("wake_word"))

    @classmethod
    def open(
        cls, filesystem: FileSystem, path: Path, role: Role, *, boot_id: bytes | None = None
    ) -> CheckpointFile:
        """Map the page; the writer creates it, or lengthens a short one, durably.

        Others raise FileNotFoundError until then, also for a page that is too short. ``boot_id``
        is that of the file system's machine unless given. Opening changes no byte of an existing page.
        """
        if role is Role.WRITER and not filesystem.exists(path):
            file = filesystem.create(path, layout.PAGE_SIZE, allocate=True)
        else:
            file = filesystem.open(path, writable=role is not Role.READER)
            if file.size < layout.PAGE_SIZE:
                if role is not Role.WRITER:
                    file.close()
                    raise FileNotFoundError(f"{path} is shorter than a page: no writer ran here")
                file.allocate(0, layout.PAGE_SIZE)
                file.sync_all()
        return cls(file, role, boot_id or filesystem.boot_id())

    def close(self) -> None:
        """Close the descriptor; the map goes with the object."""
        self._file.close()

    # ---- live: the writer

    @property
    def writer_is_current(self) -> bool:
        """Whether a writer has published in this boot, so that its live positions hold.

        They hold after its death too: what it published is in the page cache.
        """
        return (
            self._writer_magic == layout.WRITER_LIVE_MAGIC
            and (self._writer_boot_low, self._writer_boot_high) == self._boot
        )

    @property
    def head(self) -> bytes:
        """The bytes that differ after a start of the writer, a checkpoint of it, or a broker's run.

        Compare them with what they were; which words of the page hold need not be decided again
        while they are the same.
        """
        return self._head.tobytes()

    @property
    def writer_is_writable(self) -> bool:
        """Whether the writer accepts messages."""
        return bool(self._writer_flags & _FLAG_WRITABLE)

    @property
    def last_min_commit_offset(self) -> int | None:
        """Start of the oldest record as the last session of any boot left it; None if there was none."""
        return self.min_commit_offset if self._writer_magic == layout.WRITER_LIVE_MAGIC else None

    def end_session(self) -> None:
        """Have the live positions of the writer before hold no more, in this boot as after the next."""
        self._writer_magic = 0

    def start_writer(
        self,
        *,
        min_commit_offset: int,
        end_offset: int,
        dispatched_offset: int,
        config_generation: int,
    ) -> None:
        """Begin a session after recovery: everything up to ``end_offset`` is durable.

        Positions are in place before the session is valid, for readers that look meanwhile.
        """
        self._writer_magic = 0
        self.min_commit_offset = min_commit_offset
        self.appended_offset = end_offset
        self.committed_offset = end_offset
        self.flushed_offset = end_offset
        self.confirm_offset = end_offset
        self.dispatched_offset = dispatched_offset
        self.config_generation = config_generation
        self._writer_boot_low = self._boot_low
        self._writer_boot_high = self._boot_high
        self.writer_session = secrets.randbits(63) | 1
        self._writer_flags = _FLAG_WRITABLE
        self._writer_magic = layout.WRITER_LIVE_MAGIC
        self._writer_wake.bump()

    def publish_append(self, commit_offset: int, *, confirm: bool) -> None:
        """Store what an append without a pool moves, the confirmed offset last; wakes no waiter."""
        if self.role is not Role.WRITER:
            raise PermissionError("only the writer stores these positions")
        words = self._words
        words[_APPENDED] = words[_COMMITTED] = commit_offset
        if confirm:
            words[_CONFIRM] = commit_offset

    def publish_flushed(self, commit_offset: int) -> None:
        """Store the flushed offset; wakes no waiter."""
        self.flushed_offset = commit_offset

    def publish_confirm(self, commit_offset: int, *, wake: bool = True) -> None:
        """Let followers read up to here; call after the bytes are in the file.

        Without ``wake`` no waiter is woken: the dispatch that follows does it, and saves the appender
        a system call for every batch.
        """
        self.confirm_offset = commit_offset
        if wake:
            self._writer_wake.bump()

    def publish_dispatched(self, commit_offset: int) -> None:
        """Say that the queues cover everything up to here and wake who waits for it."""
        self.dispatched_offset = commit_offset
        self._writer_wake.bump()

    def publish_min_commit_offset(self, commit_offset: int) -> None:
        """Say where the log begins after old files were removed, and wake who waits."""
        self.min_commit_offset = commit_offset
        self._writer_wake.bump()

    def publish_config_generation(self, generation: int) -> None:
        """Say that the topic table on disk changed, and wake who waits."""
        self.config_generation = generation
        self._writer_wake.bump()

    def publish_writable(self, writable: bool) -> None:
        """Say whether messages are accepted, and wake who waits."""
        self._writer_flags = _FLAG_WRITABLE if writable else 0
        self._writer_wake.bump()

    @property
    def writer_word(self) -> int:
        """What to pass to ``wait_for_writer``, read before looking at positions."""
        return self._writer_wake.value

    def wait_for_writer(self, seen_word: int, timeout_s: float | None) -> int:
        """Sleep until the writer publishes something after ``seen_word``; return the word.

        A result equal to ``seen_word`` means time is up. The GIL is released.
        """
        return self._writer_wake.wait(seen_word, timeout_s)

    # ---- live: the indexer

    @property
    def indexer_is_current(self) -> bool:
        """Whether an indexer has published in this boot."""
        return (
            self._indexer_magic == layout.INDEXER_LIVE_MAGIC
            and (self._indexer_boot_low, self._indexer_boot_high) == self._boot
        )

    def start_indexer(self, *, indexed_offset: int) -> None:
        """Begin an indexer session; one of the same boot stays valid until then."""
        # A reader that found none in between would take the files that are there for all.
        self.indexed_offset = indexed_offset
        self.indexer_session = secrets.randbits(63) | 1
        # Last: a sector of another boot counts from here on, one that never was any with its magic.
        self._indexer_boot_low = self._boot_low
        self._indexer_boot_high = self._boot_high
        self._indexer_magic = layout.INDEXER_LIVE_MAGIC
        self._indexer_wake.bump()

    def publish_indexed(self, commit_offset: int) -> None:
        """Say that everything up to here is found by key, and wake who waits for it."""
        self.indexed_offset = commit_offset
        self._indexer_wake.bump()

    @property
    def indexer_word(self) -> int:
        """What to pass to ``wait_for_indexer``."""
        return self._indexer_wake.value

    def wait_for_indexer(self, seen_word: int, timeout_s: float | None) -> int:
        """Sleep until the indexer publishes something after ``seen_word``; return the word."""
        return self._indexer_wake.wait(seen_word, timeout_s)

    @property
    def indexer_wake(self) -> WakeWord:
        """The indexer's word, on which it dozes while it gathers: any process may knock."""
        return self._indexer_wake

    def interrupt(self) -> None:
        """End every wait through this object, now and from here on; see ``WakeWord.interrupt``."""
        self._writer_wake.interrupt()
        self._indexer_wake.interrupt()
