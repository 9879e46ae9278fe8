"""Option ``endpoint``: where a service is, for reads and writes by one rule."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from pipeline.errors import InvalidOption

OPTION: Final = "endpoint"
PORT_MAX: Final = (1 << 16) - 1
_HOST: Final = re.compile(r"[^\s:/\[\]]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")


def check_endpoint(endpoint: str, service: str) -> str:
    """Return HOST:PORT of ``service`` as it was given.

    HOST is a name, an IPv4 address, or an IPv6 address in brackets. Raises InvalidOption with what
    to change.
    """
    if not endpoint:
        raise InvalidOption(OPTION, f"missing; give HOST:PORT of {service}")
    fix = _fix(endpoint)
    if fix:
        raise InvalidOption(OPTION, f"{endpoint!r} is not HOST:PORT of {service}; {fix}")
    return endpoint


def _fix(endpoint: str) -> str:
    """Return what to change, "" where nothing has to be."""
    if any(sign.isspace() for sign in endpoint):
        return "take the blank out"
    if "/" in endpoint:
        return "give it without a scheme or path, like store-host:5801"
    if _is_v6(endpoint) or _is_v6(endpoint.rpartition(":")[0]):
        return "put the IPv6 address in brackets, like [::1]:5801"
    host, colon, port = endpoint.rpartition(":")
    if not colon or endpoint.endswith("]"):
        return "add the port, like store-host:5801"
    if host.startswith("[") and host.endswith("]"):
        if not _is_v6(host[1:-1]):
            return "in brackets stands an IPv6 address, like [::1]:5801"
    elif not _HOST.fullmatch(host):
        return "the host is a name, an IPv4 address, or an IPv6 address in brackets"
    if not _PORT.fullmatch(port) or not 0 < int(port) <= PORT_MAX:
        return f"the port is a number from 1 to {PORT_MAX}"
    return ""


def _is_v6(text: str) -> bool:
    try:
        return IPv6Address(text).scope_id is None
    except AddressValueError:
        return False
