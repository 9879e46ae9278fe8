"""Option ``endpoint``: where a service is, for reads and writes by one rule."""

from __future__ import annotations

from typing import Final

from penstock.addresses import address_problem
from pipeline.errors import InvalidOption

OPTION: Final = "endpoint"


def check_endpoint(endpoint: str, service: str) -> str:
    """Return HOST:PORT of ``service`` as it was given. Raises InvalidOption with what to change."""
    if not endpoint:
        raise InvalidOption(OPTION, f"missing; give HOST:PORT of {service}")
    if fix := address_problem(endpoint):
        raise InvalidOption(OPTION, f"{endpoint!r} is not HOST:PORT of {service}; {fix}")
    return endpoint
