"""Store directories as Spark DataFrames, and jobs over them. See docs/pipeline.md.

Everything here works on the bytes (``storage.format``) with the batch loops (``storage.kernels``);
the engine is not imported, so a store can be read while its writer runs, and without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.audit_job import audit, audit_stores
    from pipeline.compact_job import compact
    from pipeline.export_job import export
    from pipeline.merge_job import merge
    from pipeline.profile_job import profile
    from pipeline.rebuild_job import rebuild, rebuild_stores
    from pipeline.replay_job import replay
    from pipeline.session import build_session, read_messages, register
    from pipeline.split_job import split

__all__ = [
    "audit",
    "audit_stores",
    "build_session",
    "compact",
    "export",
    "merge",
    "profile",
    "read_messages",
    "rebuild",
    "rebuild_stores",
    "register",
    "replay",
    "split",
]

_HOMES = {
    "audit": "pipeline.audit_job",
    "audit_stores": "pipeline.audit_job",
    "compact": "pipeline.compact_job",
    "export": "pipeline.export_job",
    "merge": "pipeline.merge_job",
    "profile": "pipeline.profile_job",
    "rebuild": "pipeline.rebuild_job",
    "rebuild_stores": "pipeline.rebuild_job",
    "replay": "pipeline.replay_job",
    "split": "pipeline.split_job",
    "build_session": "pipeline.session",
    "read_messages": "pipeline.session",
    "register": "pipeline.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
