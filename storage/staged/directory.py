"""Where staged commits lie in a store.

The directory was called ``transactions/`` once. A writer renames it before it looks at anything in it.
The rename is one step and is synced before anything below the new name is written, so that a power cut
leaves all of it under one of the two names, and the next start takes it from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import StoreFailed

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

DIRECTORY: Final = "staged"
FORMER_DIRECTORY: Final = "transactions"


def directories(filesystem: FileSystem, root: Path) -> list[Path]:
    """Return the directories that hold staged commits, whatever their name."""
    names = (DIRECTORY, FORMER_DIRECTORY)
    return [root / name for name in names if filesystem.exists(root / name)]


def take_over(filesystem: FileSystem, root: Path) -> Path:
    """Return the directory after giving a former one its present name; durable on return.

    Raises StoreFailed if both hold something: an older version has written here since, and what one
    of them holds may contradict the other. Raises StoreFull, OSError.
    """
    present, former = root / DIRECTORY, root / FORMER_DIRECTORY
    if filesystem.exists(former):
        if filesystem.list_directory(present):
            raise StoreFailed(
                f"{former} and {present} both hold staged commits: an older version of this program"
                f" has written to the store since. Remove or move away one of the two"
            )
        filesystem.rename(former, present)
        filesystem.sync_directory(root)
    return present
