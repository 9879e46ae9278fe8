"""Who calls, as a record names hosts."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

_UNKNOWN: Final = "127.0.0.1:0"  # a socket of this machine has no address


@lru_cache(maxsize=4096)  # a peer sends many messages
def host_of_peer(peer: str) -> str:
    """Return ``address:port`` for gRPC's name of a peer, such as ``ipv4:10.0.0.7:51234``.

    An IPv4 address inside an IPv6 one is returned as IPv4.
    """
    kind, _, name = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return _UNKNOWN
    host, _, port = unquote(name).rpartition(":")
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return _UNKNOWN
    if not port.isdecimal():
        return _UNKNOWN
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@lru_cache(maxsize=4096)
def ip_of_peer(peer: str) -> str:
    """Return the address alone."""
    return host_of_peer(peer).rpartition(":")[0].strip("[]")


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address of a host; an IPv4 address inside an IPv6 one as IPv4. Raises ValueError."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address
