"""What every client for Python shares: arguments, bodies, the measured window and the lines about it."""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Final

ARGUMENTS: Final = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
BODIES: Final = 1000


def number(key: str, otherwise: float = 0) -> int:
    """Return a whole number of the command line."""
    return int(float(ARGUMENTS.get(key, otherwise)))


def payloads(size_bytes: int) -> list[bytes]:
    """Return 1,000 bodies that compress to half: random first half, zero second half."""
    source = random.Random(7)
    half = size_bytes // 2
    return [source.randbytes(half) + bytes(size_bytes - half) for _ in range(BODIES)]


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def result(messages: int, seconds: float, **extra: object) -> None:
    """Print what was measured."""
    say("@result " + json.dumps({"messages": messages, "seconds": seconds, **extra}))


class Window:
    """Counts what was acknowledged in the measured seconds after a warm-up."""

    def __init__(self) -> None:
        now = time.perf_counter()
        self._begin = now + float(ARGUMENTS.get("warm_up_s", 3))
        self._seconds = float(ARGUMENTS.get("seconds", 10))
        self._measuring = False
        self._before = self._messages = self._errors = 0
        self._first_error = ""

    def going(self) -> bool:
        """Return whether to send more, False once the result is printed; call it often."""
        now = time.perf_counter()
        if not self._measuring:
            if now >= self._begin:
                self._measuring, self._before, self._begin = True, self._messages, now
                say("@begin")
            return True
        if now < self._begin + self._seconds:
            return True
        say("@end")
        counted = self._messages - self._before
        result(counted, now - self._begin, errors=self._errors, first_error=self._first_error)
        return False

    def acknowledged(self, count: int) -> None:
        """Count messages that the server has acknowledged."""
        self._messages += count

    def fail(self, error: object) -> None:
        """Count an error, and keep the first."""
        self._errors += 1
        self._first_error = self._first_error or str(error)[:200]


class Passes:
    """Counts a backlog that is drained again and again: whole passes for the warm-up and for the seconds."""

    def __init__(self) -> None:
        self.backlog = number("messages", 1_000_000)
        self._began = time.perf_counter()
        self._warm_up_s = float(ARGUMENTS.get("warm_up_s", 5))
        self._seconds = float(ARGUMENTS.get("seconds", 10))
        self._measuring = False
        self._count = self._missing = 0

    def end(self, count: int) -> bool:
        """Count a pass that read so many; return whether to begin another, False once the result is printed."""
        now = time.perf_counter()
        self._missing += self.backlog - count
        self._count += count
        if not self._measuring:
            if now - self._began >= self._warm_up_s:
                say("@begin")
                self._measuring, self._began, self._count = True, time.perf_counter(), 0
            return True
        if now - self._began < self._seconds:
            return True
        say("@end")
        result(self._count, now - self._began, missing=self._missing)
        return False
