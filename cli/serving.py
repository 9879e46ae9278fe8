"""``penstock serve|writer|reader|indexer|gateway|console|health``: the services behind one command name."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Annotated, Final

import typer

from cli.commands import CALLERS
from cli.failures import CommandFailed, ExitCode, no_answer
from cli.session import check_address, session_of
from penstock.addresses import DEFAULT_GATEWAY
from penstock.credentials import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE

COMMON_TO_CALLERS: Final = (
    "writer", "reader", "indexer", "tls_ca", "tls_cert", "tls_key", "tls_server_name",
)  # fmt: skip
SERVICES: Final = {
    "serve": "Run all services under one supervisor.",
    "writer": "Run the writer: the one process that appends.",
    "reader": "Run the reader: serves what is stored.",
    "indexer": "Run the indexer: builds the index files.",
    "gateway": "Run the gateway: serves RocketMQ's own clients.",
    "console": "Run the console: pages for a browser.",
}


def register(app: typer.Typer) -> None:
    """Add the commands; a service parses its own options, so that its --help is complete."""
    for name, line in SERVICES.items():
        app.command(
            name,
            help=line,
            add_help_option=False,
            context_settings={
                "allow_extra_args": True,
                "ignore_unknown_options": True,
                "allow_interspersed_args": False,
            },
        )(_runner(name))
    app.command("health")(health)


def _runner(name: str) -> Callable[[typer.Context], None]:
    module = "services.supervisor" if name == "serve" else f"services.{name}.__main__"

    def run(context: typer.Context) -> None:
        entry = importlib.import_module(module).main
        before = _options_before(context) if name in CALLERS else []
        if name in CALLERS:
            _pass_keys(context)
        code = entry([*before, *context.args])
        raise typer.Exit(code or ExitCode.DONE)

    return run


def _options_before(context: typer.Context) -> list[str]:
    """Return the options of all commands that were given before the command, for a process that takes them, too."""
    given = context.parent
    assert given is not None
    flags = []
    for option in COMMON_TO_CALLERS:
        source = given.get_parameter_source(option)
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            flags += [f"--{option.replace('_', '-')}", str(given.params[option])]
    return flags


def _pass_keys(context: typer.Context) -> None:
    """Have the process call with a profile's keys, unless it is given addresses of its own."""
    own = {word.partition("=")[0] for word in context.args} & {"--writer", "--reader", "--indexer"}
    credentials = None if own else session_of(context).credentials()
    if credentials is not None:
        os.environ[ACCESS_KEY_VARIABLE] = credentials.access_key  # noqa: TID251  as the client reads it
        os.environ[SECRET_KEY_VARIABLE] = credentials.secret_key  # noqa: TID251  likewise


def health(
    context: typer.Context,
    service_or_address: Annotated[
        str,
        typer.Argument(
            metavar="writer|reader|indexer|gateway|HOST:PORT",
            help="A service, at the address that other commands use, or any address.",
        ),
    ],
    service: Annotated[
        str, typer.Option(help="Name to ask for, such as penstock.v1.Writer; empty: the process.")
    ] = "",
) -> None:
    """Ask a service how it is; exit code 0 only if it is SERVING."""
    session = session_of(context)
    addresses = {
        "writer": session.writer,
        "reader": session.reader,
        "indexer": session.indexer,
        "gateway": DEFAULT_GATEWAY,
    }
    address = addresses.get(service_or_address, service_or_address)
    check_address("ADDRESS", address)
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with session.channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service),
                timeout=session.timeout_s,
            )
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise CommandFailed(
                    f"{address} has no service {service!r}", ExitCode.NOT_FOUND
                ) from error
            raise no_answer(error, address, session.tls) from error
    state = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    session.say(
        f"{address} [{'green' if serving else 'red'}]{state}[/]",
        {"address": address, "service": service, "status": state},
    )
    if not serving:
        raise typer.Exit(ExitCode.REFUSED)
