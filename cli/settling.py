"""Waiting until what was acknowledged can be consumed too, which is a moment later."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from cli.failures import CommandFailed, ExitCode

if TYPE_CHECKING:
    from penstock import Client

POLL_SECONDS: Final = 0.005


def wait_until_visible(client: Client, end_commit_offset: int, *, timeout_s: float = 60.0) -> None:
    """Return once consumers see every record before a commit offset."""
    deadline = time.monotonic() + timeout_s
    while client.reader_status().visible_offset < end_commit_offset:
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"records before commit offset {end_commit_offset} cannot be read after"
                f" {timeout_s:.0f} s",
                ExitCode.UNREACHABLE,
            )
        time.sleep(POLL_SECONDS)
