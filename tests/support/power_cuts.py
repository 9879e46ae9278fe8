"""A file system that knows what its disk holds, so that the power can be cut at any step.

It works on a live directory. Beside it, of each file it keeps the bytes that were last synced, and of
each directory the names that were, with what has changed since. A *cut* writes another directory, as the
next start may find it: of what was not synced each sector may be there or not, files may be short, new
names missing, removed and renamed ones back. A *kill* takes the process alone: its successor finds all
that the page cache has, on a disk that still holds no more than was synced.

Everything that is left to chance is taken from one ``random.Random``.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from disk_model import DiskDirectory, DiskFile, Node, mixed

from storage.errors import StoreFull
from storage.files.filesystem import OsFile, OsFileSystem

OPEN_FILES_MANY = 400
WRITE_BACK_CHANCE = 0.03  # at each step: the kernel writes something back that nobody asked for


class Stopped(BaseException):
    """The process was killed or the machine went down; nothing of it goes on."""


def bury_the_dead() -> None:
    """Free what stopped engines still have mapped, once it is much: each map has a descriptor."""
    if sum(1 for _ in Path("/proc/self/fd").iterdir()) < OPEN_FILES_MANY:
        return
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()  # what was there before need not be looked at each time
    gc.collect()


class _WatchedFile(OsFile):
    """An open file of the simulated disk."""

    def __init__(self, path: Path, descriptor: int, disk: PowerCuts) -> None:
        super().__init__(path, descriptor)
        self._disk = disk
        self._node = disk.node_of(descriptor)

    def pwrite(self, data: Any, position: int) -> None:
        view = memoryview(data).cast("B")
        torn = view[: len(view) // 2]
        write = super().pwrite
        self._disk.step("write", self.path, lambda: write(torn, position))
        write(data, position)
        self._node.write_anew(position, len(view))

    def allocate(self, position: int, length: int) -> None:
        self._disk.step("space", self.path)
        super().allocate(position, length)

    def extend(self, size: int) -> None:
        self._disk.step("space", self.path)
        super().extend(size)

    def zero(self, position: int, length: int) -> None:
        self._disk.step("write", self.path)
        super().zero(position, length)
        self._node.write_anew(position, length)

    def sync(self) -> None:
        self._disk.sync_file(self.path, self._node)

    def sync_all(self) -> None:
        self._disk.sync_file(self.path, self._node)

    def give_name(self) -> None:
        self._disk.step("name", self.path)
        super().give_name()
        self._disk.notice(self.path.parent)


class PowerCuts(OsFileSystem):
    """The file system below ``root``; what is there at first is durable.

    ``step`` is called before each thing that it does. At the step ``fatal`` the machine goes down, or
    with ``kills`` the process: then ``stop`` has made ``successor``, and every step from there on
    raises Stopped. ``memory`` is a directory that lives in memory, such as /dev/shm.
    """

    def __init__(self, root: Path, dice: random.Random, *, memory: Path | None = None) -> None:
        super().__init__()
        self.root = root
        self.memory = memory
        self.count = 0
        self.fatal = 0
        self.kills = False
        self.fault: tuple[int, int] | None = None  # an errno, from which step on
        self.faults_left = 0
        self.fault_at = ""  # only where the path has this in it
        self.fault_leaves = "mixed"  # what a failing sync has written
        self.successor: PowerCuts | None = None
        self.new_root: Callable[[], Path] = lambda: root.with_name(root.name + "x")
        self.trace: list[str] = []
        self.on_step: Callable[[str], None] = lambda _: None
        self._dice = dice
        self._guard = threading.RLock()
        self._files: dict[tuple[int, int], DiskFile] = {}
        self._locks: list[Any] = []
        self._open_files: WeakSet[_WatchedFile] = WeakSet()
        self._top = DiskDirectory()
        root.mkdir(exist_ok=True, parents=True)
        self._adopt(self._top, root)

    # ---- what the engine calls

    def _opened(self, path: Path, descriptor: int) -> OsFile:
        file = _WatchedFile(path, descriptor, self)
        self._open_files.add(file)
        return file

    def make_directory(self, path: Path) -> None:
        if not path.is_dir():
            self.step("space", path)
        super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self.step("name", path)
        super().remove_directory(path)
        self.notice(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        self.step("name", target)
        with self._guard:
            self.notice(source.parent)
            super().rename(source, target)
            directory = self._directory(source.parent)
            if target.parent == source.parent:
                node = directory.names.pop(source.name)
                directory.names[target.name] = node
                directory.changes.append((source.name, target.name, node))
            else:
                self.notice(target.parent)
                self.notice(source.parent)

    def link(self, source: Path, target: Path) -> None:
        self.step("name", target)
        super().link(source, target)
        self.notice(target.parent)

    def unlink(self, path: Path) -> None:
        self.step("name", path)
        super().unlink(path)
        self.notice(path.parent)

    def sync_directory(self, path: Path) -> None:
        if not path.is_relative_to(self.root):
            return  # of the root itself: it is there
        self.step("sync", path)
        with self._guard:
            self.notice(path)
            directory = self._directory(path)
            directory.durable = dict(directory.names)
            directory.changes.clear()

    def lock(self, path: Path, position: int, content: bytes) -> Any:
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

    # ---- stopping

    def step(self, kind: str, path: Path, half: Callable[[], None] | None = None) -> None:
        """Count a step; stop at the fatal one, ``half`` of it done or not; fail at the faulty one."""
        with self._guard:
            if self.successor is not None:
                raise Stopped
            self.count += 1
            self.trace.append(f"{self.count} {kind} {path.relative_to(self.root)}")
            self.on_step(self.trace[-1])
            if self.count == self.fatal:
                if half is not None and self._dice.random() < 0.5:
                    half()
                self.stop(kills=self.kills)
                raise Stopped
            if self._dice.random() < WRITE_BACK_CHANCE and self._files:
                self._dice.choice(list(self._files.values())).write_back(self._dice)
            if (
                self.fault is not None
                and self.count >= self.fault[1]
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

    def stop(self, *, kills: bool, how: str = "") -> PowerCuts:
        """Cut the power now, or kill the process; return what the next start finds.

        ``how`` is what a cut leaves of what was not synced: "none", "all", or as the dice fall.
        """
        with self._guard:
            if self.successor is None:
                target = self.new_root()
                self.trace.append("killed" if kills else "power cut")
                self.successor = self._killed(target) if kills else self._cut(target, how)
                self.successor.new_root = self.new_root
                self.close()
            return self.successor

    def leave(self, target: Path, *, kills: bool) -> None:
        """Write what a kill or a cut would leave now to a directory, and go on."""
        with self._guard:
            (self._killed(target) if kills else self._cut(target, "")).close()

    def trust(self, path: Path) -> None:
        """Take what others have written to a file, or below a directory, for durable."""
        with self._guard:
            self.notice(path.parent)
            names = self._directory(path.parent)
            node = names.durable[path.name] = names.names[path.name]
            names.changes = [change for change in names.changes if change[1] != path.name]
            if isinstance(node, DiskFile):
                node.sync()
                return
            self.notice(path)
            for name in node.names:
                self.trust(path / name)

    def close(self) -> None:
        """Let go of every file."""
        for lock in self._locks:
            lock.release()
        for file in list(self._open_files):
            file.close()
        self._files.clear()
        self._top = DiskDirectory()

    def _moved(self, path: Path | None, target: Path) -> Path | None:
        return None if path is None else target / path.relative_to(self.root)

    def _cut(self, target: Path, how: str) -> PowerCuts:
        self._notice_all(self._top, self.root)
        how = how or self._dice.choice(("none", "all", *["mixed"] * 6))
        self._write_left(self._top, self.root, target, how)
        return PowerCuts(target, self._dice, memory=self._moved(self.memory, target))

    def _write_left(self, directory: DiskDirectory, path: Path, target: Path, how: str) -> None:
        target.mkdir(exist_ok=True)
        names = directory.left(self._dice, how)
        if path == self.memory:  # a stale one may be there where it is no memory after all
            names = directory.names if self._dice.random() < 0.3 else {}
        for name, node in sorted(names.items()):
            if isinstance(node, DiskDirectory):
                self._write_left(node, path / name, target / name, how)
            else:
                live = node.live()
                kept = live if path == self.memory else mixed(node.durable, live, self._dice, how)
                (target / name).write_bytes(kept)

    def _killed(self, target: Path) -> PowerCuts:
        self._notice_all(self._top, self.root)
        copies: dict[int, Node] = {}
        successor = PowerCuts(target, self._dice, memory=self._moved(self.memory, target))
        successor._top = successor._copy_of(self._top, target, copies)
        return successor

    def _copy_of(self, source: DiskDirectory, path: Path, copies: dict[int, Node]) -> DiskDirectory:
        """Copy a tree with what its disk holds; files without a name get one for a moment."""
        path.mkdir(exist_ok=True)
        directory = DiskDirectory()

        def copied(name: str, node: Node) -> Node:
            copy = copies.get(id(node))
            if copy is None and isinstance(node, DiskDirectory):
                copy = copies[id(node)] = self._copy_of(node, path / name, copies)
            elif copy is None and isinstance(node, DiskFile):
                place = path / name
                while place.exists():
                    place = place.with_name(place.name + "~")
                place.write_bytes(node.live())
                descriptor = os.open(place, os.O_RDONLY)
                status = os.fstat(descriptor)
                copy = copies[id(node)] = DiskFile(descriptor, node.durable)
                if not place.match("index/*"):  # mapped: that it is written anew is not seen
                    copy.given_up = dict(node.given_up)
                self._files[status.st_dev, status.st_ino] = copy
                if source.names.get(name) is not node:
                    place.unlink()
            elif (
                isinstance(copy, DiskFile)
                and source.names.get(name) is node
                and not (path / name).exists()
            ):
                number = copy.descriptor
                open_file = f"/proc/self/fd/{number}"
                os.link(open_file, path / name, src_dir_fd=number, follow_symlinks=True)
            assert copy is not None
            return copy

        for name, node in source.names.items():
            directory.names[name] = copied(name, node)
        gone = {name for name in source.durable if name not in source.names}
        for name, node in source.durable.items():
            directory.durable[name] = copied(name, node)
        directory.changes = [
            (old, new, None if node is None else copied(new, node))
            for old, new, node in source.changes
        ]
        for name in gone:
            if (path / name).is_dir():
                shutil.rmtree(path / name)
        return directory

    # ---- knowing what is there

    def node_of(self, descriptor: int) -> DiskFile:
        """Return what is known of an open file; a new one has nothing on the disk."""
        with self._guard:
            status = os.fstat(descriptor)
            node = self._files.get((status.st_dev, status.st_ino))
            if node is None:
                node = self._files[status.st_dev, status.st_ino] = DiskFile(os.dup(descriptor), b"")
            return node

    def _file_at(self, path: Path) -> DiskFile:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return self.node_of(descriptor)
        finally:
            os.close(descriptor)

    def _adopt(self, directory: DiskDirectory, path: Path) -> None:
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_dir():
                node: Node = DiskDirectory()
                self._adopt(node, path / entry.name)
            else:
                node = self._file_at(path / entry.name)
                node.sync()
            directory.names[entry.name] = directory.durable[entry.name] = node

    def _directory(self, path: Path) -> DiskDirectory:
        if path == self.root:
            return self._top
        parent = self._directory(path.parent)
        if path.name not in parent.names:
            self.notice(path.parent)
        node = parent.names[path.name]
        assert isinstance(node, DiskDirectory)
        return node

    def notice(self, path: Path) -> None:
        """Look which names have come to a directory and gone from it."""
        with self._guard:
            self._notice(self._directory(path), path)

    def _notice(self, directory: DiskDirectory, path: Path) -> None:
        found = {entry.name: entry for entry in os.scandir(path)}
        for name in [name for name in directory.names if name not in found]:
            del directory.names[name]
            directory.changes.append((name, "", None))
        for name, entry in sorted(found.items()):
            known = directory.names.get(name)
            if entry.is_dir():
                node = known if isinstance(known, DiskDirectory) else DiskDirectory()
            else:
                node = self._file_at(path / name)
            if node is not known:
                directory.names[name] = node
                directory.changes.append(("", name, node))

    def _notice_all(self, directory: DiskDirectory, path: Path) -> None:
        self._notice(directory, path)
        for name, node in directory.names.items():
            if isinstance(node, DiskDirectory):
                self._notice_all(node, path / name)
