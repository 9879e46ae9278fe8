"""``penstock job NAME``: the jobs of docs/pipeline.md, run with Spark on this machine or a cluster."""

from __future__ import annotations

import typer

from cli.jobs import audit, compact, export, merge, rebuild, replay, split

app = typer.Typer(
    help="Jobs over whole stores, with Spark (make setup-spark).", no_args_is_help=True
)

app.command()(rebuild.rebuild)
app.command()(audit.audit)
app.command()(export.export)
app.command()(compact.compact)
app.command()(replay.replay)
app.command()(merge.merge)
app.command()(split.split)
