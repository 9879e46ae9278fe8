"""``penstock job NAME``: the jobs of docs/pipeline.md, run with Spark on this machine or a cluster."""

from __future__ import annotations

import typer

from cli import (
    job_audit,
    job_compact,
    job_export,
    job_merge,
    job_profile,
    job_rebuild,
    job_replay,
    job_split,
)

app = typer.Typer(
    help="Jobs over whole stores, with Spark (make setup-spark).", no_args_is_help=True
)

app.command()(job_rebuild.rebuild)
app.command()(job_audit.audit)
app.command()(job_export.export)
app.command()(job_compact.compact)
app.command()(job_replay.replay)
app.command()(job_profile.profile)
app.command()(job_merge.merge)
app.command()(job_split.split)
