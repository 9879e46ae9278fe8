"""What it gives that the thread which waits for a call reads its socket: ``python -m bench.rpc.sockets``.

Both stores are alike, except for gRPC's own threads for sockets, which ``services/__init__.py`` turns off.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Final

from bench import drivers, secure
from bench.figures import Figure, command
from services import loops

SETTING: Final = "GRPC_EXPERIMENTS"
WANTED: Final = {"produce": 1.0, "pull": 0.95, "call": 1.1}


def run(*, rounds: int = drivers.ROUNDS) -> list[Figure]:
    """Measure each kind of load on both in turn."""
    figures = []
    with ExitStack() as stack:
        ours = secure.store(stack)
        before = os.environ[SETTING]  # noqa: TID251  importing the services has set it
        os.environ[SETTING] = ""  # noqa: TID251
        try:
            theirs = secure.store(stack)
        finally:
            os.environ[SETTING] = before  # noqa: TID251
        for what, wanted in WANTED.items():
            measured = secure.measure(
                ours, theirs, what, wanted, rounds,
                how="sockets read by the thread that waits", limit_name="gRPC's threads",
            )  # fmt: skip
            figures.append(loops.run(measured))
    return figures


if __name__ == "__main__":
    command(run)
