"""What the shell completes beside commands and options: names of topics of the running store, and of profiles."""

from __future__ import annotations

from contextlib import suppress

import typer

from cli.failures import CommandFailed
from cli.profiles import load_profiles
from cli.session import Session
from penstock.addresses import DEFAULT_WRITER

COMPLETION_SECONDS = 1.0
"""Somebody waits at a prompt: a store that does not answer by then completes nothing."""


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin so; none where the writer does not answer."""
    from penstock.errors import PenstockError
    from penstock.tls import tls_of

    given = context.find_root().params
    with suppress(CommandFailed, PenstockError, OSError, ValueError):
        profile = load_profiles().chosen(given.get("_profile") or "")

        def value(name: str, default: str = "") -> str:
            return str(given.get(name) or profile.get(name) or default)

        session = Session(
            writer=value("writer", DEFAULT_WRITER),
            timeout_s=COMPLETION_SECONDS,
            tls=tls_of(
                value("tls_ca"), value("tls_cert"), value("tls_key"), value("tls_server_name")
            ),
            access_key=value("access_key"),
            secret_key=value("secret_key"),
        )
        with session.client() as client:
            return [each.name for each in client.topics() if each.name.startswith(incomplete)]
    return []


def profile_names(incomplete: str) -> list[str]:
    """Return the profiles that begin so."""
    with suppress(CommandFailed, OSError):
        return [name for name in sorted(load_profiles().profiles) if name.startswith(incomplete)]
    return []
