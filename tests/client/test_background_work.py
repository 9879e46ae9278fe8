"""Work beside the caller's begins after an interrupted start too, and what goes wrong in it reaches the caller."""

from __future__ import annotations

import threading
from unittest.mock import patch

import pytest

from penstock.consuming.background import Background

PATIENCE_S = 60.0


def interrupted(_: threading.Thread) -> None:
    raise KeyboardInterrupt


def interrupt_start(background: Background) -> None:
    with patch.object(threading.Thread, "start", interrupted), pytest.raises(KeyboardInterrupt):
        background.start(lambda: None)


def test_a_thread_whose_start_was_interrupted_is_started_again() -> None:
    background, worked = Background("test"), threading.Event()
    interrupt_start(background)
    background.start(worked.set)
    assert worked.wait(PATIENCE_S)
    background.join()


def test_a_thread_whose_start_was_interrupted_can_be_joined() -> None:
    background = Background("test")
    interrupt_start(background)
    background.stop()
    background.join()


def test_a_thread_that_began_before_its_start_was_interrupted_is_the_only_one() -> None:
    background, counted, ending = Background("test"), threading.Semaphore(0), threading.Event()
    start = threading.Thread.start

    def work() -> None:
        counted.release()
        ending.wait(PATIENCE_S)

    def started_and_interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    with (
        patch.object(threading.Thread, "start", started_and_interrupted),
        pytest.raises(KeyboardInterrupt),
    ):
        background.start(work)
    background.start(work)
    ending.set()
    background.join()
    assert counted.acquire(timeout=PATIENCE_S)
    assert not counted.acquire(blocking=False)
