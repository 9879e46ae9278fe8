"""Store directories as Spark DataFrames, and jobs over them. See docs/pipeline.md.

Everything here works on the bytes (``storage.format``) with the batch loops (``storage.kernels``);
the engine is not imported, so a store can be read while its writer runs, and without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.jobs.audit import audit, audit_stores
    from pipeline.jobs.compact.job import compact
    from pipeline.jobs.export.job import export
    from pipeline.jobs.merge import merge
    from pipeline.jobs.rebuild.job import rebuild, rebuild_stores
    from pipeline.jobs.replay import replay
    from pipeline.jobs.split import split
    from pipeline.session.session import build_session, read_messages, register

__all__ = [
    "audit",
    "audit_stores",
    "build_session",
    "compact",
    "export",
    "merge",
    "read_messages",
    "rebuild",
    "rebuild_stores",
    "register",
    "replay",
    "split",
]

_HOMES = {
    "audit": "pipeline.jobs.audit",
    "audit_stores": "pipeline.jobs.audit",
    "compact": "pipeline.jobs.compact.job",
    "export": "pipeline.jobs.export.job",
    "merge": "pipeline.jobs.merge",
    "rebuild": "pipeline.jobs.rebuild.job",
    "rebuild_stores": "pipeline.jobs.rebuild.job",
    "replay": "pipeline.jobs.replay",
    "split": "pipeline.jobs.split",
    "build_session": "pipeline.session.session",
    "read_messages": "pipeline.session.session",
    "register": "pipeline.session.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
