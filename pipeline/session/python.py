"""The Python that Spark runs on the driver's machine.

Spark ends workers that had nothing to do for a minute. It has a setting for the daemon that forks those of
tasks, and none for the daemons of those that plan a query, which would import the kernels again. So
the Python itself is a script that starts ``pipeline.session.daemon`` wherever Spark asks for its own.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final
from zlib import crc32

from pipeline.session.scripts import make_script

SCRIPT: Final = """\
#!/bin/sh
# Runs Python for Spark; a daemon has the kernels loaded before it forks the first worker.
[ "$2" = pyspark.daemon ] && shift 2 && set -- -m pipeline.session.daemon "$@"
exec {python} "$@"
"""


def quick_python(cache: Path) -> str:
    """Return this Python by way of a script below ``cache``; itself where nothing can be written."""
    python = sys.executable
    script = cache / f"python-{crc32(python.encode()):x}" / "python"
    try:
        make_script(script, SCRIPT.format(python=shlex.quote(python)))
    except OSError:
        return python
    return str(script)
