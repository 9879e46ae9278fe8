"""Names of clients that hold leases."""

from __future__ import annotations

import os
import secrets
import socket


def new_client_id() -> str:
    """Return a name that no other client has: host, process, and something random."""
    return f"{socket.gethostname()}@{os.getpid()}@{secrets.token_hex(6)}"
