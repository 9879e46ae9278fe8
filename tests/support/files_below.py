"""The files of a directory that others make and remove while one looks."""

from __future__ import annotations

import os
from pathlib import Path


def files_below(directory: Path, suffix: str = "") -> list[Path]:
    """List all files below a directory. ``Path.rglob`` throws when a directory goes while it walks."""
    walk = os.walk(directory)
    return [Path(root, name) for root, _, names in walk for name in names if name.endswith(suffix)]
