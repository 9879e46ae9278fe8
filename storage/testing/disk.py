"""A file system that knows what its disk holds, so that the power can be cut at any step.

It works on a live directory. Beside it, of each file it keeps the bytes that were last synced, and of
each directory the names that were, with what has changed since. A *power cut* writes another directory,
as the next start may find it: of what was not synced each sector may be there or not, files may be short,
new names missing, removed and renamed ones back. A *kill* takes the process alone: its successor finds
all that the page cache has, on a disk that still holds no more than was synced.

Everything that is left to chance is taken from one ``random.Random``.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from storage.errors import StoreFull
from storage.files.filesystem import File, FileSystem
from storage.testing.contents import DiskFile
from storage.testing.tree import DiskTree

if TYPE_CHECKING:
    from storage.files.record_locks import RecordLock

OPEN_FILES_MANY: Final = 400  # more than were left the last time
WRITE_BACK_CHANCE: Final = (
    0.03  # at each step: the kernel writes something back that nobody asked for
)
MOSTLY_MIXED: Final = ("none", "all", *["mixed"] * 6)


class ProcessStopped(BaseException):
    """The process was killed or the machine went down; nothing of it goes on."""


class _OpenFiles:
    """How many files of this process were open after stores were last freed: others may hold them."""

    left = 0


def free_stopped_stores() -> None:
    """Free what stopped stores still have mapped, once it is much; for tests that stop hundreds."""
    if _open_file_count() < _OpenFiles.left + OPEN_FILES_MANY:
        return
    gc.collect()
    if not gc.get_freeze_count():
        gc.freeze()  # what was there before need not be looked at each time
    _OpenFiles.left = _open_file_count()


def _open_file_count() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class _WatchedFile(File):
    """An open file of the simulated disk."""

    def __init__(self, path: Path, descriptor: int, disk: SimulatedDisk, node: DiskFile) -> None:
        super().__init__(path, descriptor)
        self._disk = disk
        self._node = node

    def pwrite(self, data: Any, position: int) -> None:
        view = memoryview(data).cast("B")
        torn = view[: len(view) // 2]
        write = super().pwrite
        self._disk.step("write", self.path, lambda: write(torn, position))
        write(data, position)
        self._node.write_again(position, len(view))

    def allocate(self, position: int, length: int) -> None:
        self._disk.step("space", self.path)
        super().allocate(position, length)

    def extend(self, size: int) -> None:
        self._disk.step("space", self.path)
        super().extend(size)

    def zero(self, position: int, length: int) -> None:
        self._disk.step("write", self.path)
        super().zero(position, length)
        self._node.write_again(position, length)

    def sync(self) -> None:
        self._disk.sync_file(self.path, self._node)

    def sync_all(self) -> None:
        self._disk.sync_file(self.path, self._node)

    def give_name(self, path: Path) -> None:
        self._disk.step("name", self.path)
        super().give_name(path)
        self._disk.notice(self.path.parent)


class SimulatedDisk(FileSystem):
    """The file system below ``root``, which is made if need be; what is there at first is durable.

    Each thing that it does is a numbered step: a write, a change of a name, taking space, a sync. At step
    ``stop_at`` the machine goes down, or with ``stop_kills`` the process: ``successor`` is then what the
    next start finds, and every step from there on raises ProcessStopped. Stores into maps are no steps; they
    are lost by a cut unless a sync came after them.

    ``fault`` is an errno and the step from which ``faults_left`` steps fail with it: EIO where a file is
    synced, ENOSPC where space is needed; ``fault_at`` narrows it to paths with that text in them.
    ``memory`` is a directory below the root that lives in memory, such as /dev/shm.
    """

    def __init__(
        self,
        root: Path,
        dice: random.Random | None = None,
        *,
        memory: Path | None = None,
        boot_number: int = 0,
    ) -> None:
        super().__init__()
        self.root = root
        self.memory = memory
        self.boot_number = boot_number
        self.step_count = 0
        self.stop_at = 0
        self.stop_kills = False
        self.stop_leaves = ""
        self.fault: tuple[int, int] | None = None  # an errno, from which step on
        self.faults_left = 0
        self.fault_at = ""
        self.fault_leaves = "mixed"  # what a failing sync has written
        self.successor: SimulatedDisk | None = None
        self.new_root: Callable[[], Path] | None = None  # of successors; a name beside this root's
        self.trace: list[str] = []
        self.on_step: Callable[[str], None] = lambda _: None
        self._dice = dice or random.Random(1)  # noqa: S311  chance, not secrets
        self._locks: list[RecordLock] = []
        self._open_files: WeakSet[_WatchedFile] = WeakSet()
        root.mkdir(exist_ok=True, parents=True)
        self._tree = DiskTree(root, memory)
        self._guard: threading.RLock = self._tree.guard
        self._tree.adopt()

    # ---- stopping

    def stop_after(self, steps: int, *, kills: bool = False, leaves: str = "") -> None:
        """Stop at the step that is so many from now, as ``kill`` or ``cut_power`` do."""
        self.stop_at = self.step_count + steps
        self.stop_kills, self.stop_leaves = kills, leaves

    def kill(self) -> SimulatedDisk:
        """Kill the process now, unless it was stopped; return what the next start finds."""
        return self.stop(kills=True)

    def cut_power(self, leaves: str = "") -> SimulatedDisk:
        """Cut the power now, unless it was stopped; return what the next start finds.

        ``leaves`` is what is left of what was not synced: "none", "all", "mixed", or any of them.
        """
        return self.stop(kills=False, leaves=leaves)

    def stop(self, *, kills: bool, leaves: str = "") -> SimulatedDisk:
        """Kill the process or cut the power; see ``kill`` and ``cut_power``."""
        with self._guard:
            if self.successor is None:
                beside = self.root.with_name(self.root.name + "-next")
                target = beside if self.new_root is None else self.new_root()
                self.trace.append("killed" if kills else "power cut")
                self.successor = self._killed(target) if kills else self._cut(target, leaves)
                self.successor.new_root = self.new_root
                self.close()
            return self.successor

    @property
    def was_killed(self) -> bool:
        """Whether it was stopped by a kill."""
        return self.trace[-1:] == ["killed"]

    def leave(self, target: Path, *, kills: bool) -> None:
        """Write what a kill or a cut would leave now to a directory, and go on."""
        with self._guard:
            (self._killed(target) if kills else self._cut(target, "")).close()

    def trust(self, path: Path) -> None:
        """Take what others have written to a file, or below a directory, for durable."""
        self._tree.trust(path)

    def close(self) -> None:
        """Let go of every file and lock."""
        for lock in self._locks:
            lock.release()
        for file in list(self._open_files):
            file.close()
        self._tree.forget()

    def _moved(self, path: Path | None, target: Path) -> Path | None:
        return None if path is None else target / path.relative_to(self.root)

    def _cut(self, target: Path, leaves: str) -> SimulatedDisk:
        leaves = leaves or self._dice.choice(MOSTLY_MIXED)
        self._tree.write_left(target, self._dice, leaves)
        memory = self._moved(self.memory, target)
        return SimulatedDisk(target, self._dice, memory=memory, boot_number=self.boot_number + 1)

    def _killed(self, target: Path) -> SimulatedDisk:
        memory = self._moved(self.memory, target)
        successor = SimulatedDisk(target, self._dice, memory=memory, boot_number=self.boot_number)
        self._tree.copy_to(successor._tree)
        return successor

    def step(self, kind: str, path: Path, half: Callable[[], None] | None = None) -> None:
        """Count a step; stop at ``stop_at``, ``half`` of it done or not; fail where a fault is due."""
        with self._guard:
            if self.successor is not None:
                raise ProcessStopped
            self.step_count += 1
            self.trace.append(f"{self.step_count} {kind} {path.relative_to(self.root)}")
            self.on_step(self.trace[-1])
            if self.step_count == self.stop_at:
                if half is not None and self._dice.random() < 0.5:
                    half()
                self.stop(kills=self.stop_kills, leaves=self.stop_leaves)
                raise ProcessStopped
            files = self._tree.files
            if self._dice.random() < WRITE_BACK_CHANCE and files:
                self._dice.choice(list(files.values())).write_back(self._dice)
            if (
                self.fault is not None
                and self.step_count >= self.fault[1]
                and self.fault_at in str(path.relative_to(self.root))
            ):
                self._fail(kind, path)

    def _fail(self, kind: str, path: Path) -> None:
        assert self.fault is not None
        code = self.fault[0]
        if kind == "sync" if code == errno.EIO else kind in ("write", "space"):
            self.trace[-1] += f" {errno.errorcode[code]}"
            self.faults_left -= 1
            if self.faults_left <= 0:
                self.fault = None
            if code == errno.ENOSPC:
                raise StoreFull(f"no space left for {path}")
            raise OSError(code, os.strerror(code))

    # ---- what a store calls

    def boot_id(self) -> bytes:
        """Return 16 bytes that change with every power cut."""
        return b"boot %11d" % self.boot_number

    def _opened(self, path: Path, descriptor: int) -> File:
        file = _WatchedFile(path, descriptor, self, self._tree.node_of(descriptor))
        self._open_files.add(file)
        return file

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        """Create a directory and its missing parents."""
        if not path.is_dir():
            self.step("space", path)
        super().make_directory(path, durable=durable)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        self.step("name", path)
        super().remove_directory(path)
        self.notice(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target."""
        self.step("name", target)
        with self._guard:
            self.notice(source.parent)
            super().rename(source, target)
            directory = self._tree.directory(source.parent)
            if target.parent == source.parent:
                node = directory.names.pop(source.name)
                directory.names[target.name] = node
                directory.changes.append((source.name, target.name, node))
            else:
                self.notice(target.parent)
                self.notice(source.parent)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        self.step("name", target)
        super().link(source, target)
        self.notice(target.parent)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        self.step("name", path)
        super().unlink(path)
        self.notice(path.parent)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        if not path.is_relative_to(self.root):
            return  # of the root itself: it is there
        if not path.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.step("sync", path)
        self._tree.sync_directory(path)

    def sync_filesystem(self, path: Path) -> None:
        """Make everything durable, or fail to."""
        with self._guard:
            try:
                self.step("sync", path)
            except OSError:
                self._tree.fail_to_sync_all(self._dice, self.fault_leaves)
                raise
            self._tree.sync_all()

    def lock(self, path: Path, position: int, content: bytes) -> RecordLock:
        """Take a lock that is let go of with the process."""
        lock = super().lock(path, position, content)
        self._locks.append(lock)
        return lock

    def sync_file(self, path: Path, node: DiskFile) -> None:
        """Make a file's bytes durable, or fail to."""
        with self._guard:
            try:
                self.step("sync", path)
            except OSError:
                node.fail_to_sync(self._dice, self.fault_leaves)
                raise
            node.sync()

    def notice(self, path: Path) -> None:
        """Look which names have come to a directory and gone from it."""
        self._tree.notice(path)
