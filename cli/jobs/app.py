"""``penstock job NAME``: the jobs of docs/pipeline.md, run with Spark on this machine or a cluster."""

from __future__ import annotations

import typer

from cli.jobs import checks, stores
from cli.jobs.export import export

app = typer.Typer(
    help="Jobs over whole stores, with Spark (make setup-spark).", no_args_is_help=True
)

for job in (
    checks.rebuild, checks.audit, export, stores.compact, stores.replay, stores.merge, stores.split,
):  # fmt: skip
    app.command()(job)
