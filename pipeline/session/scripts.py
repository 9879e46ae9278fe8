"""Small scripts that Spark starts in the place of a program, kept in the user's cache directory.

Spark ends workers that had nothing to do for a minute. It has a setting for the daemon that forks those of
tasks, and none for the daemons of those that plan a query, which would import the kernels again. So its
Python itself is a script that starts ``pipeline.session.daemon`` wherever Spark asks for its own.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zlib import crc32

SCRIPT: Final = """\
#!/bin/sh
# Runs Python for Spark; a daemon has the kernels loaded before it forks the first worker.
[ "$2" = pyspark.daemon ] && shift 2 && set -- -m pipeline.session.daemon "$@"
exec {python} "$@"
"""


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


def quick_python(cache: Path) -> str:
    """Return this Python by way of a script below ``cache``; itself where nothing can be written."""
    python = sys.executable
    script = cache / f"python-{crc32(python.encode()):x}" / "python"
    try:
        make_script(script, SCRIPT.format(python=shlex.quote(python)))
    except OSError:
        return python
    return str(script)
