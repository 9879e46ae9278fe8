"""Options ``endpoint`` and ``tls...``: where a service is and how it is called; one rule for reads and writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from penstock.addresses import address_problem
from penstock.tls import PUBLIC, TLS, BadTlsFile, tls_of
from pipeline.errors import InvalidOption

OPTION: Final = "endpoint"
TLS_OPTIONS: Final = ("tlsCa", "tlsCert", "tlsKey", "tlsServerName")


def check_endpoint(endpoint: str, service: str) -> str:
    """Return HOST:PORT of ``service`` as it was given. Raises InvalidOption with what to change."""
    if not endpoint:
        raise InvalidOption(OPTION, f"missing; give HOST:PORT of {service}")
    if fix := address_problem(endpoint):
        raise InvalidOption(OPTION, f"{endpoint!r} is not HOST:PORT of {service}; {fix}")
    return endpoint


def endpoint_tls(given: Mapping[str, str]) -> TLS | None:
    """Return TLS of calls to an endpoint with what is in its files, which executors need not have.

    Raises InvalidOption.
    """
    if given and not given.get("tlsCa"):
        raise InvalidOption("tlsCa", f"missing beside {next(iter(given))!r}")
    words = (given.get(name, "") for name in TLS_OPTIONS)
    try:
        tls = tls_of(*words)
        return None if tls is None else tls.loaded()
    except BadTlsFile as error:
        raise InvalidOption("tlsCa", str(error)) from error


def tls_options(tls: TLS | None) -> dict[str, str]:
    """Return the options that say the same; its files are given by their paths."""
    if tls is None:
        return {}
    values = (PUBLIC if tls.ca is None else tls.ca, tls.cert, tls.key, tls.server_name)
    return {
        name: os.fsdecode(value) for name, value in zip(TLS_OPTIONS, values, strict=True) if value
    }
