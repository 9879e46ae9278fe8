"""Threads take functions: a coroutine function's return would be taken for work that is done."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Client


async def never_run(_: Any) -> bool:
    """Would acknowledge a message, or commit a transaction, that nobody looked at."""
    return False


def test_threads_are_given_no_coroutine_function() -> None:
    with Client() as client:
        with (
            client.subscribe("t", group="g") as messages,
            pytest.raises(TypeError, match="AsyncClient"),
        ):
            messages.run(never_run)
        with pytest.raises(TypeError, match="AsyncClient"):
            client.transaction_checker(["t"], never_run)
