"""The modes of files and directories that are made in a store: for their owner alone, unless they are shared.

Services share by a setting. Jobs, commands and Spark's workers, which have no settings of a service, take the
same variable.
"""

from __future__ import annotations

import os
from typing import Final

SHARED_FILES_VARIABLE: Final = "PENSTOCK_SHARED_FILES"
_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})
_OWNERS: Final = 0o600, 0o700
_SHARED: Final = 0o666, 0o777  # less what the process's umask takes


def is_asked_to_share() -> bool:
    """Return whether the variable says that other users may open what is made."""
    value = os.environ.get(SHARED_FILES_VARIABLE, "")  # noqa: TID251  of processes without settings
    return value.strip().lower() in _YES


_shared = is_asked_to_share()


def share(*, shared: bool) -> None:
    """Set whether what this process makes from now on may be opened by other users."""
    global _shared  # noqa: PLW0603  as a umask is the process's
    _shared = shared


def of_file() -> int:
    """Return the mode of a new file."""
    return (_SHARED if _shared else _OWNERS)[0]


def of_directory() -> int:
    """Return the mode of a new directory."""
    return (_SHARED if _shared else _OWNERS)[1]
