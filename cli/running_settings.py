"""``penstock config show`` and ``penstock config set``: settings that change while services run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import session_of
from penstock.addresses import ALL_SERVICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.addresses import Service

app = typer.Typer(help="Show and change settings of running services.", no_args_is_help=True)
Services = Annotated[
    list[str] | None,
    typer.Option("--service", help="writer, reader or indexer; may be given again; none: all."),
]


@app.command()
def show(context: typer.Context, service: Services = None) -> None:
    """Show the settings that change while services run."""
    session = session_of(context)
    with session.client() as client:
        rows = [
            {"service": name, **dataclasses.asdict(client.running_settings(name))}
            for name in _named(service)
        ]
    session.show(rows)


@app.command("set")
def set_settings(
    context: typer.Context,
    log_level: Annotated[
        str | None, typer.Option(help="Least severe event to log: debug, info, warning, error.")
    ] = None,
    access_log: Annotated[
        str | None, typer.Option(help="Which calls are logged: none, failures, all.")
    ] = None,
    slow_call_ms: Annotated[
        int | None, typer.Option(min=0, help="Calls that take longer are logged; 0: none.")
    ] = None,
    service: Services = None,
) -> None:
    """Change settings of running services, until their next start."""
    session = session_of(context)
    if log_level is None and access_log is None and slow_call_ms is None:
        raise CommandFailed(
            "nothing to change: give --log-level, --access-log or --slow-call-ms", ExitCode.USAGE
        )
    with session.client() as client:
        rows = [
            {
                "service": name,
                **dataclasses.asdict(
                    client.update_running_settings(
                        name, log_level=log_level, access_log=access_log, slow_call_ms=slow_call_ms
                    )
                ),
            }
            for name in _named(service)
        ]
    session.show(rows)


def _named(services: Sequence[str] | None) -> list[Service]:
    unknown = sorted(set(services or ()) - set(ALL_SERVICES))
    if unknown:
        raise CommandFailed(f"--service: {unknown[0]!r} is not a service", ExitCode.USAGE)
    return [name for name in ALL_SERVICES if not services or name in services]
