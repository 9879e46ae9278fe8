"""Settings that change while a process runs: what of its calls and events it logs. Used on the event loop."""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

from services import logs
from services.config.groups import AccessLog, LogLevel, LogSettings
from services.rpc.status import InvalidArgument


class Logged(NamedTuple):
    """What is logged."""

    log_level: str
    access_log: str
    slow_call_ms: int


class RunningSettings:
    """What is in force."""

    def __init__(self, settings: LogSettings) -> None:
        self._take(Logged(settings.log_level, settings.access_log, settings.slow_call_ms))

    def change(self, changed: Logged) -> None:
        """Take others. Raises InvalidArgument with nothing changed."""
        for name, words in (("log_level", get_args(LogLevel)), ("access_log", get_args(AccessLog))):
            if getattr(changed, name) not in words:
                raise InvalidArgument(name, f"is one of {', '.join(words)}")
        if changed.slow_call_ms < 0:
            raise InvalidArgument("slow_call_ms", "must not be negative")
        if changed.log_level != self.logged.log_level:
            logs.set_level(changed.log_level)
        self._take(changed)
        logs.get_logger().info("settings changed", **changed._asdict())

    def _take(self, logged: Logged) -> None:
        self.logged = logged
        self.logs_all = logged.access_log == "all"
        self.logs_refusals = logged.access_log != "none"
        self.slow_s = logged.slow_call_ms / 1e3 or math.inf
