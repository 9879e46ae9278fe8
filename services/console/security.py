"""What a browser is told and asked, so that no other site acts for whoever looks at these pages."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from penstock.addresses import host_of

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CHANGES_NOTHING: Final = frozenset({"GET", "HEAD"})


def is_from_here(request: Request) -> bool:
    """Whether a form was sent by a page of this console: browsers say where each comes from."""
    origin = request.headers.get("origin", "")
    try:
        return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")
    except ValueError:
        return False


def host_name(request: Request) -> str | None:
    """Return the name, or the address, by which a request asks for this console; None: it is malformed."""
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return None


def is_own_name(name: str, listen: str) -> bool:
    """Whether a request is for a name of this console, and not for one that its owner lets point here.

    Without accounts the name is all that keeps a page of another site, whose name resolves to this address, from
    reading these.
    """
    if name in (host_of(listen).lower(), "localhost", socket.gethostname().lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.endswith(".localhost")
    return True
