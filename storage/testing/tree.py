"""The files and directories below one directory, each with what the disk holds of it."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path

from storage.testing.contents import DiskDirectory, DiskFile, Node, mixed

STALE_MEMORY_CHANCE = 0.3  # that a cut leaves files of a "memory" directory which is none after all


class DiskTree:
    """A live directory, and beside it what is durable; what is there at first is durable.

    ``memory`` is a directory in it that lives in memory, such as /dev/shm.
    """

    def __init__(self, root: Path, memory: Path | None) -> None:
        self.root = root
        self.memory = memory
        self.guard = threading.RLock()
        self.files: dict[tuple[int, int], DiskFile] = {}  # by device and inode
        self._top = DiskDirectory()

    def adopt(self) -> None:
        """Take what is there for durable."""
        self._adopt(self._top, self.root)

    def _adopt(self, directory: DiskDirectory, path: Path) -> None:
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_dir():
                below = DiskDirectory()
                self._adopt(below, path / entry.name)
                node: Node = below
            else:
                node = self._file_at(path / entry.name)
                node.sync()
            directory.names[entry.name] = directory.durable[entry.name] = node

    def forget(self) -> None:
        """Let go of every file."""
        self.files.clear()
        self._top = DiskDirectory()

    # ---- knowing what is there

    def node_of(self, descriptor: int) -> DiskFile:
        """Return what is known of an open file; a new one has nothing on the disk."""
        with self.guard:
            status = os.fstat(descriptor)
            node = self.files.get((status.st_dev, status.st_ino))
            if node is None:
                node = self.files[status.st_dev, status.st_ino] = DiskFile(os.dup(descriptor), b"")
            return node

    def _file_at(self, path: Path) -> DiskFile:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return self.node_of(descriptor)
        finally:
            os.close(descriptor)

    def directory(self, path: Path) -> DiskDirectory:
        """Return what is known of a directory."""
        if path == self.root:
            return self._top
        parent = self.directory(path.parent)
        if path.name not in parent.names:
            self.notice(path.parent)
        node = parent.names[path.name]
        assert isinstance(node, DiskDirectory)
        return node

    def notice(self, path: Path) -> None:
        """Look which names have come to a directory and gone from it."""
        with self.guard:
            self._notice(self.directory(path), path)

    def _notice(self, directory: DiskDirectory, path: Path) -> None:
        found = {entry.name: entry for entry in os.scandir(path)}
        for name in [name for name in directory.names if name not in found]:
            del directory.names[name]
            directory.changes.append((name, "", None))
        for name, entry in sorted(found.items()):
            known = directory.names.get(name)
            if entry.is_dir():
                node: Node = known if isinstance(known, DiskDirectory) else DiskDirectory()
            else:
                node = self._file_at(path / name)
            if node is not known:
                directory.names[name] = node
                directory.changes.append(("", name, node))

    def notice_all(self) -> None:
        """Look in every directory."""
        self._notice_all(self._top, self.root)

    def _notice_all(self, directory: DiskDirectory, path: Path) -> None:
        self._notice(directory, path)
        for name, node in directory.names.items():
            if isinstance(node, DiskDirectory):
                self._notice_all(node, path / name)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with self.guard:
            self.notice(path)
            directory = self.directory(path)
            directory.durable = dict(directory.names)
            directory.changes.clear()

    def sync_all(self) -> None:
        """Make all bytes and names durable."""
        with self.guard:
            self.notice_all()
            for node in self.files.values():
                node.sync()
            self._sync_names(self._top)

    def _sync_names(self, directory: DiskDirectory) -> None:
        directory.durable = dict(directory.names)
        directory.changes.clear()
        for node in directory.names.values():
            if isinstance(node, DiskDirectory):
                self._sync_names(node)

    def fail_to_sync_all(self, dice: random.Random, how: str) -> None:
        """Write some of the bytes, and take the rest for written from here on."""
        with self.guard:
            for node in self.files.values():
                node.fail_to_sync(dice, how)

    def trust(self, path: Path) -> None:
        """Take what others have written to a file, or below a directory, for durable."""
        with self.guard:
            self.notice(path.parent)
            names = self.directory(path.parent)
            node = names.durable[path.name] = names.names[path.name]
            names.changes = [change for change in names.changes if change[1] != path.name]
            if isinstance(node, DiskFile):
                node.sync()
                return
            self.notice(path)
            for name in node.names:
                self.trust(path / name)

    # ---- what is left

    def write_left(self, target: Path, dice: random.Random, how: str) -> None:
        """Write what a power cut leaves to another directory."""
        self.notice_all()
        self._write_left(self._top, self.root, target, dice, how)

    def _write_left(
        self, directory: DiskDirectory, path: Path, target: Path, dice: random.Random, how: str
    ) -> None:
        target.mkdir(exist_ok=True)
        names = directory.left(dice, how)
        if path == self.memory:
            names = directory.names if dice.random() < STALE_MEMORY_CHANCE else {}
        for name, node in sorted(names.items()):
            if isinstance(node, DiskDirectory):
                self._write_left(node, path / name, target / name, dice, how)
            else:
                live = node.live()
                kept = live if path == self.memory else mixed(node.durable, live, dice, how)
                (target / name).write_bytes(kept)

    def copy_to(self, target: DiskTree) -> None:
        """Copy everything as the page cache has it, together with what the disk holds of it."""
        self.notice_all()
        nameless: list[Path] = []
        target._top = target._copy_of(self._top, target.root, {}, nameless)
        for place in nameless:
            place.unlink(missing_ok=True)

    def _copy_of(
        self,
        source: DiskDirectory,
        path: Path,
        copies: dict[int, Node],
        nameless: list[Path],
    ) -> DiskDirectory:
        """Copy a directory; files without a name in it get one, until all are copied: ``nameless``.

        A file that was renamed to another directory has its name there.
        """
        path.mkdir(exist_ok=True)
        directory = DiskDirectory()

        def copied(name: str, node: Node) -> Node:
            copy = copies.get(id(node))
            if copy is None and isinstance(node, DiskDirectory):
                copy = copies[id(node)] = self._copy_of(node, path / name, copies, nameless)
            elif copy is None and isinstance(node, DiskFile):
                place = path / name
                while place.exists():
                    place = place.with_name(place.name + "~")
                place.write_bytes(node.live())
                descriptor = os.open(place, os.O_RDONLY)
                status = os.fstat(descriptor)
                copy = copies[id(node)] = DiskFile(descriptor, node.durable)
                if not place.match("index/*"):  # mapped: that it is written again is not seen
                    copy.given_up = dict(node.given_up)
                self.files[status.st_dev, status.st_ino] = copy
                if source.names.get(name) is not node:
                    nameless.append(place)
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
