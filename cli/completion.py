"""What the shell completes beside commands and options: names of topics of the running store, and of profiles."""

from __future__ import annotations

from contextlib import suppress

import typer

from cli.failures import CommandFailed
from cli.profiles import keys_for, load_profiles
from cli.session import Session

COMPLETION_SECONDS = 1.0
"""Somebody waits at a prompt: a store that does not answer by then completes nothing."""


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin so; none where the writer does not answer."""
    from penstock.errors import PenstockError
    from penstock.tls import tls_of

    root = context.find_root()
    given = root.params
    addresses = given["writer"], given["reader"], given["indexer"]
    with suppress(CommandFailed, PenstockError, OSError, ValueError):
        access_key, secret_key = keys_for(root.obj or {}, *addresses)
        session = Session(
            writer=given["writer"],
            timeout_s=COMPLETION_SECONDS,
            tls=tls_of(
                *(given[name] for name in ("tls_ca", "tls_cert", "tls_key", "tls_server_name"))
            ),
            access_key=access_key,
            secret_key=secret_key,
        )
        with session.client() as client:
            return [each.name for each in client.topics() if each.name.startswith(incomplete)]
    return []


def profile_names(incomplete: str) -> list[str]:
    """Return the profiles that begin so."""
    with suppress(CommandFailed, OSError):
        return [name for name in sorted(load_profiles().profiles) if name.startswith(incomplete)]
    return []
