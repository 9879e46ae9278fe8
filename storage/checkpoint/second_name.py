"""A second name of the checkpoint page, by which a removed one gets its own back.

Writer, indexer and readers have one page mapped, and go on in it when somebody removes its name. Who
starts then would find none, or make another page that the rest does not see. A file without any name cannot
get one again, so the writer gives it a second, ``config/checkpoint.kept``, and looks now and then whether
the first is there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.errors import StoreFull
from storage.files.directory_lock import DirectoryLock, LockRole

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

SECOND_NAME: Final = "checkpoint.kept"
_OTHERS: Final = (LockRole.INDEXER, LockRole.CONSUMER_OFFSETS)


class NameProblem(NamedTuple):
    """What was wrong with the first name, in words, and whether it leads to the page again."""

    message: str
    is_over: bool


class SecondName:
    """The names of one page; whoever has the writer's lock uses it."""

    def __init__(self, filesystem: FileSystem, path: Path, config_directory: Path) -> None:
        self._filesystem = filesystem
        self._path = path
        self._second = config_directory / SECOND_NAME
        self._inode: int | None = None  # of the page, None without a second name

    def give(self) -> None:
        """Give the page that the first name leads to the second; without it where that cannot be done."""
        with suppress(OSError, StoreFull):
            inode = self._at(self._path)
            if self._at(self._second) != inode:
                with suppress(FileNotFoundError):
                    self._filesystem.unlink(self._second)
                self._filesystem.link(self._path, self._second)
            self._inode = inode

    def give_back_to_others(self) -> None:
        """Give a removed page its name again if an indexer or a reader works with it; without one nothing is done."""
        root = self._path.parent
        with suppress(OSError, StoreFull):  # as for a page that is gone for good
            if (
                self._at(self._path) is None
                and self._at(self._second) is not None
                and any(DirectoryLock.is_held(root, role, self._filesystem) for role in _OTHERS)
            ):
                self._give_back()

    def look(self) -> NameProblem | None:
        """Return what was wrong with the first name, None if nothing was; it is put right if that can be done.

        Raises OSError, StoreFull.
        """
        if self._inode is None or (found := self._at(self._path)) == self._inode:
            return None
        what = f"was {'removed' if found is None else 'replaced'} while the store was open"
        if self._at(self._second) != self._inode:
            advice = "stop all services and start them again"
            return NameProblem(f"{what}, and so was config/{SECOND_NAME}; {advice}", False)
        self._give_back()
        return NameProblem(f"{what}; it is there again", True)

    def _give_back(self) -> None:
        spare = self._second.with_name(f"{SECOND_NAME}.tmp")
        with suppress(FileNotFoundError):
            self._filesystem.unlink(spare)
        self._filesystem.link(self._second, spare)
        self._filesystem.rename(spare, self._path)
        self._filesystem.sync_directory(self._path.parent)

    def _at(self, path: Path) -> int | None:
        try:
            return self._filesystem.status(path).inode
        except FileNotFoundError:
            return None
