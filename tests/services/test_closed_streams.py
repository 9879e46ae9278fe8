"""A process that is started with its standard streams closed."""

from __future__ import annotations

import subprocess
import sys

_HOLD = (
    "import os; from services import stdio; stdio.hold();"
    "raise SystemExit(0 if all(map(os.get_inheritable, range(3))) else 3)"
)


def test_children_inherit_what_stands_for_streams_that_are_closed() -> None:
    """Else one of them has a file or a socket of its own as its standard output."""
    program = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", _HOLD]
    assert subprocess.run(program, check=False).returncode == 0
