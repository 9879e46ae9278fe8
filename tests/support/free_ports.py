"""Ports for a server that is to begin later, or again: no other process gets them meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import socket

# Below the ports that the kernel hands out to whoever asks for any: one of those may be somebody's
# by the time that a server has started.
_PORTS = range(20_000, 32_000)
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_share = len(_PORTS) // _WORKERS
# In a row, as a broker counts some of its ports from another one.
_own = _PORTS[_WORKER * _share : (_WORKER + 1) * _share]
_begin = random.SystemRandom().randrange(len(_own))  # another run of the tests begins elsewhere
_next = itertools.cycle((*_own[_begin:], *_own[:_begin]))


def free_port() -> int:
    """Return a port of 127.0.0.1 that is not in use, another one with every call."""
    for port in itertools.islice(_next, len(_own)):
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no port is free")


def free_address() -> str:
    """Return ``127.0.0.1:PORT`` with a free port."""
    return f"127.0.0.1:{free_port()}"
