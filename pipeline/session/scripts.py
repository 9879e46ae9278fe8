"""Small scripts that Spark starts in the place of a program, kept in the user's cache directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the user's directory for scripts; a temporary one where there is no home."""
    base = environment.get("XDG_CACHE_HOME") or (
        str(Path(environment["HOME"], ".cache")) if environment.get("HOME") else None
    )
    if base is None:
        return Path(tempfile.gettempdir(), f"penstock-{os.getuid()}")
    return Path(base, "penstock")


def make_script(path: Path, text: str) -> None:
    """Write a script that can be run, whole or not at all; many processes may do it at once."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(name).chmod(0o755)
    Path(name).replace(path)
