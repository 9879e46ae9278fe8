"""Runs a client that makes load, and takes the readings that belong to its measured window.

A client prints ``@begin`` and ``@end`` around the window and then ``@result`` with JSON. One that waits for a
restart of its server prints ``@ready``, reads a line when the server is being started, and prints
``@acknowledged`` with the wall-clock time of the first answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.resident import cpu_seconds

TIMEOUT_S: Final = 300.0
ROOT: Final = Path(__file__).parents[2]


class LoadFailed(RuntimeError):
    """A client ended without a result, or requests failed, or messages were missing."""


def run(
    command: Sequence[object],
    arguments: dict[str, object],
    *,
    servers: Callable[[], list[int]] = list,
    restart: Callable[[], None] | None = None,
) -> dict[str, float]:
    """Return what a client measured, with ``server_cpu_s_per_s`` of the window.

    ``servers`` returns the process ids of the servers; ``restart`` stops the server and starts it again
    without waiting for it. Raises LoadFailed.
    """
    words = [str(word) for word in command] + [f"{key}={value}" for key, value in arguments.items()]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},  # noqa: TID251
    )  # fmt: skip
    errors: list[str] = []
    assert process.stderr is not None
    stderr = process.stderr
    collecting = threading.Thread(target=lambda: errors.extend(stderr))
    collecting.start()
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        measured = _follow(process, servers, restart)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        collecting.join()
        process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
        process.stdin.close()  # type: ignore[union-attr]
    if not measured:
        raise LoadFailed(f"the client ended without a result: {''.join(errors)[-1000:]}")
    return measured


def _follow(
    process: subprocess.Popen[str],
    servers: Callable[[], list[int]],
    restart: Callable[[], None] | None,
) -> dict[str, float]:
    assert process.stdout is not None
    assert process.stdin is not None
    before = used = 0.0
    for line in process.stdout:
        word, _, rest = line.strip().partition(" ")
        if word == "@begin":
            before = cpu_seconds(servers())
        elif word == "@end":
            used = cpu_seconds(servers()) - before
        elif word == "@ready" and restart is not None:
            restart()
            process.stdin.write("\n")
            process.stdin.flush()
        elif word == "@acknowledged":
            return {"acknowledged_at": float(rest)}
        elif word == "@result":
            result = json.loads(rest)
            problem = result.pop("first_error", "")
            if result.pop("errors", 0) or result.get("missing"):
                raise LoadFailed(f"requests failed or messages are missing: {problem} {result}")
            seconds = result["seconds"] or 1e-9
            return dict(
                result,
                messages_per_s=result["messages"] / seconds,
                server_cpu_s_per_s=used / seconds,
            )
    return {}
