"""Waking across processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from storage.files.filesystem import FileSystem
from storage.files.system.futex import WakeWord

FILESYSTEM = FileSystem()


@pytest.fixture
def page(tmp_path):
    return FILESYSTEM.create(tmp_path / "page", 4096, allocate=True).map(writable=True).array


def test_a_waiter_in_another_process_with_a_read_only_map_is_woken(tmp_path, page):
    """Ping-pong: each side only goes on when the other has bumped; no timeout may help it."""
    answers = FILESYSTEM.create(tmp_path / "answers", 4096, allocate=True).map(writable=True).array
    program = textwrap.dedent(f"""
        from pathlib import Path
        from storage.files.filesystem import FileSystem
        from storage.files.system.futex import WakeWord
        fs, d = FileSystem(), Path({str(tmp_path)!r})
        asked = WakeWord(fs.open(d / "page", writable=False).map(writable=False).array, 512)
        answer = WakeWord(fs.open(d / "answers", writable=True).map(writable=True).array, 512)
        answer.bump()
        for seen in range(200):
            assert asked.wait(seen, None) == seen + 1
            answer.bump()
    """)
    asked, answer = WakeWord(page, 512), WakeWord(answers, 512)
    with subprocess.Popen([sys.executable, "-c", program]) as other:
        try:
            assert answer.wait(0, 60) == 1
            for index in range(200):
                asked.bump()
                assert answer.wait(index + 1, 60) == index + 2
            assert other.wait(60) == 0
        finally:
            other.kill()


def test_waiting_lets_other_threads_run(page):
    """The wait is in the kernel without the GIL, or this would never end."""
    word = WakeWord(page, 8)
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(word.wait(0, None))) for _ in range(5)]
    for thread in threads:
        thread.start()
    word.bump()
    for thread in threads:
        thread.join(30)
    assert seen == [1] * 5


def test_unaligned_words_are_refused():
    with pytest.raises(ValueError, match="aligned"):
        WakeWord(np.zeros(64, np.uint8), 2)
