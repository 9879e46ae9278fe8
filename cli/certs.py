"""``penstock certs``: an authority and certificates for a trial, or for machines that have no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import session_of

THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")
DAYS_MAX: Final = 3_650
_CLIENT: Final = re.compile(r"(?!(?:ca|server)$|[-.])[\w.@+-]{1,64}", re.ASCII)


def certs(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Where the files go; it is made.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or IP address of the services, besides localhost; repeatable."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(help="Common name of a client's certificate; repeatable; none: client."),
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, max=DAYS_MAX, help="How long certificates are valid.")
    ] = 365,
) -> None:
    """Make a certificate authority, a certificate for the services and one for each client.

    An authority that is in the directory is used again, and the other files are replaced: services that run
    take up the new ones.
    """
    from cli.trial_authority import TrialAuthority, host_name

    hosts = [*dict.fromkeys((*(host or ()), *THIS_MACHINE))]
    clients = client or ["client"]
    for name in clients:
        if not _CLIENT.fullmatch(name):
            raise CommandFailed(f"--client: {name!r} does not do for a file", ExitCode.USAGE)
    try:
        names = [host_name(each) for each in hosts]
        authority = TrialAuthority.of(directory)
    except ValueError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error
    authority.certify("server", hosts[0], names=names, days=days)
    for name in clients:
        authority.certify(name, name, names=(), days=days)
    session_of(context).say(
        f"{directory}: ca.pem; server.pem and server.key, for {', '.join(hosts)};"
        f" {', '.join(f'{name}.pem and {name}.key' for name in clients)}",
        {"directory": str(directory), "hosts": hosts, "clients": clients},
    )
