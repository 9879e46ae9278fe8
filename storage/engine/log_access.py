"""What staged commits need of an engine's log; what is decided is appended whatever topics allow now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.staged.log_access import LogAccess

if TYPE_CHECKING:
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.log.batches import Prepared


def log_access(
    engine: Engine, appender: Appender, refuse: Callable[[Prepared], Prepared]
) -> LogAccess:
    """Return the calls by which staged commits append; ``refuse`` raises for what cannot be staged."""

    def wait_flushed(end_commit_offset: int, timeout_s: float) -> bool:
        engine.flusher.hurry()
        return engine.flusher.wait(end_commit_offset, timeout_s)

    return LogAccess(
        prepare=lambda records: refuse(appender.prepare(records)),
        check_size=engine.log.check_size,
        check_queue=appender.check_queue,
        check_open=appender.check_open,
        append=lambda prepared: appender.append(prepared, decided=True)[0],
        appended_offset=lambda: engine.log.appended_offset,
        wait_flushed=wait_flushed,
        fail=engine.fail,
        files=engine.log.files,
    )
