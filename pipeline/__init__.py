"""Store directories as Spark DataFrames, and jobs over them. See docs/pipeline.md.

Everything here works on the bytes (``storage.format``) with the batch loops (``storage.kernels``);
the engine is not imported, so a store can be read while its writer runs, and without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.audit_job import audit
    from pipeline.rebuild_job import rebuild
    from pipeline.session import build_session, read_messages, register

__all__ = ["audit", "build_session", "read_messages", "rebuild", "register"]

_HOMES = {
    "audit": "pipeline.audit_job",
    "rebuild": "pipeline.rebuild_job",
    "build_session": "pipeline.session",
    "read_messages": "pipeline.session",
    "register": "pipeline.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
