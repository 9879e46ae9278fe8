"""The writer's journal: small states by name, each put whole and durable on return, whatever the flush mode.

A put is one block, so all of it or none survives a stop, and a prefix of the journal is what was true at a
time. Nothing is put before the put before it is synced. So a block that is not whole at the end of a file is
the put that a stop has torn; one that others follow was durable, and is damaged.

A start reads the newest file: its first put begins a new generation with all states, as does a put after an
error, and one to a file that has grown long. What follows the damage in a file is not known: a start keeps
the file as ``NAME.damaged`` and begins a generation with what precedes the damage. Whoever cannot do without
the rest refuses its work for as long as the file is there.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from storage.errors import StoreFull
from storage.format.journal import MAGIC, blocks_in
from storage.format.names import parse_file_name
from storage.format.states import STATES, SYNCED, decode_states, encode_states
from storage.journal.journal import Blocks, Journal, JournalEnd

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from storage.files.filesystem import FileSystem, ReadFileSystem

_LOG: Final = logging.getLogger(__name__)
DAMAGED: Final = ".damaged"
SIZE_MAX: Final = 1 << 20  # of a file, or four times its first block
_OVERHEAD: Final = 128  # of a put: the heads of its block and of the next
_HEAD_WORDS: Final = 3


class States:
    """States by name, as they are now."""

    def __init__(self, states: dict[str, bytes]) -> None:
        self._states = states

    def names(self, prefix: str) -> list[str]:
        """Return the names of states that begin so."""
        states = self._states.copy()  # a put may come meanwhile
        return [name for name, state in states.items() if state and name.startswith(prefix)]

    def get(self, name: str) -> bytes:
        """Return a state, b"" if there is none."""
        return self._states.get(name, b"")

    def document(self, name: str) -> Any:
        """Return a state that is a document, None if there is none."""
        return json.loads(self.get(name) or b"null")


class ReadStates(States):
    """What the newest file has, and whether it is damaged; ``problems`` says of each file what is wrong."""

    def __init__(
        self, generation: int, path: Path | None, states: dict[str, bytes], problems: dict[str, str]
    ) -> None:
        super().__init__(states)
        self.generation = generation
        self.path = path
        self.states = states
        self.problems = problems


def read_states(filesystem: ReadFileSystem, directory: Path) -> ReadStates:
    """Return the states of a journal, none without one. Raises OSError, StoreBusy."""
    problems, files = {}, []
    for entry in filesystem.list_directory(directory):
        generation = parse_file_name(entry.name.removesuffix(DAMAGED))
        if generation is not None:
            files.append((generation, entry.name))
            if entry.name.endswith(DAMAGED):
                problems[entry.name] = (
                    "is damaged: what was committed last is not known. Remove it if that will not be committed again"
                )
    if not files:
        return ReadStates(0, None, {}, problems)
    generation, name = max(files)
    try:
        data = filesystem.read_bytes(directory / name)
    except FileNotFoundError:  # a newer one has replaced it
        return read_states(filesystem, directory)
    states, end, damage = _states_in(data, generation)
    if damage:
        problems[name] = f"is damaged at {end}: {damage}; what was put since is not known"
    return ReadStates(generation, directory / name, states, problems)


def _states_in(data: bytes, generation: int) -> tuple[dict[str, bytes], int, str]:
    """Return the states of a file, where its whole blocks end, and what damage is there."""
    states: dict[str, bytes] = {}
    end = JournalEnd(generation)
    for block in blocks_in(memoryview(data)):
        try:
            if block.kind == STATES:
                states |= decode_states(block.payload)
            elif block.kind != SYNCED:
                raise ValueError(f"a block of kind {block.kind}")
        except ValueError as error:
            return _present(states), end.position, str(error)
        end.note(block)
    if not end.block_count:
        return {}, 0, "it does not begin with a whole block"
    is_damaged = _holds_later_block(data[end.position :], end.block_count)
    return _present(states), end.position, "a block is not whole" if is_damaged else ""


def _present(states: dict[str, bytes]) -> dict[str, bytes]:
    return {name: state for name, state in states.items() if state}


def _holds_later_block(rest: bytes, block_count: int) -> bool:
    """Return whether there is the head of a block behind the first one of the rest, which is not whole."""
    words = np.frombuffer(rest[: len(rest) // 8 * 8], "<u8")[_HEAD_WORDS:]
    heads = np.flatnonzero((words[:-1] & 0xFFFFFFFF) == MAGIC)
    numbers = words[heads + 1]
    return bool(((numbers > block_count) & (numbers < block_count + len(words))).any())


def encode_document(document: object) -> bytes:
    """Return a document as a state."""
    return json.dumps(document, separators=(",", ":")).encode()


class StateJournal(States, Journal):
    """States that are put. Any thread may call what it adds to both."""

    reserved_bytes = 64 << 10

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        """Read the states; they are durable on return. Raises OSError, StoreBusy."""
        found = read_states(filesystem, directory)
        States.__init__(self, found.states)
        Journal.__init__(self, filesystem, directory, JournalEnd(found.generation))
        self._guard = threading.Lock()
        path = found.path
        if path is not None:
            # What a killed process has put and not synced counts from here on.
            file = filesystem.open(path, writable=True)
            try:
                file.sync()
            finally:
                file.close()
            is_damaged = path.name in found.problems
            if is_damaged and not path.name.endswith(DAMAGED):
                filesystem.rename(path, path.with_name(path.name + DAMAGED))
            filesystem.sync_directory(directory)
            if is_damaged:
                with suppress(StoreFull):  # who removes the damaged file keeps what was read of it
                    self.replace(_put_of(self._states))
        for name, problem in found.problems.items():
            _LOG.error("%s/%s %s", directory.name, name, problem)

    def damaged_file(self) -> Path | None:
        """Return a file that was damaged when it was read, None if none is there."""
        for entry in self._filesystem.list_directory(self._directory):
            if entry.name.endswith(DAMAGED):
                return self._directory / entry.name
        return None

    def put_document(self, name: str, document: object) -> None:
        """Put a state that is a document, as ``put`` does."""
        self.put({name: encode_document(document)})

    def put(self, states: Mapping[str, bytes]) -> None:
        """Put some states, all or none, b"" to remove one; durable on return.

        Raises StoreFull with nothing changed, and OSError, after which a start may find them or not.
        """
        with self._guard:
            changed = {name: state for name, state in states.items() if state != self.get(name)}
            if not changed:
                return
            blocks = _put_of(changed)
            size = len(blocks[0][1]) + _OVERHEAD
            if self._file is not None and self.size + size <= max(SIZE_MAX, 4 * self.begin_size):
                self.reserve(size)
                self._append_put(blocks)
            else:
                self.replace(_put_of(_present(self._states | changed)))
            self._states.update(changed)  # one step for those who read meanwhile
            for removed in [name for name, state in changed.items() if not state]:
                del self._states[removed]

    def _append_put(self, blocks: Blocks) -> None:
        put, synced = blocks
        try:
            self.append([put])
            self.sync()
            self.append([synced])
        except BaseException:
            self._let_go()  # what it holds by now is not known: the next put begins a generation
            raise

    def _fail(self, error: OSError) -> NoReturn:
        """Let go of the file: no error is final, as the next put begins a generation."""
        self._let_go()
        raise error

    def close(self) -> None:
        """Let go of the file; everything in it is durable."""
        with self._guard:
            self._let_go()


def _put_of(states: Mapping[str, bytes]) -> Blocks:
    return [(STATES, encode_states(states)), (SYNCED, b"")]
