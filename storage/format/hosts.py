"""Hosts inside records: an address and a port.

    offset  size     type   field
    0       4 or 16  bytes  address   IPv4 or IPv6, network order; a sysFlag bit says which
    4 / 16  4        i32    port      a full int, not a short
    8 / 20

As text a host is ``127.0.0.1:10911`` or ``[2001:db8:0:0:0:0:0:7]:10911``: Java's form, which never
shortens a run of zero groups. Reading accepts any form of an address.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from struct import Struct
from typing import Final

PORT: Final = Struct(">i")
IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = 20
PORT_MAX: Final = 0xFFFF
ANY_HOST: Final = "0.0.0.0:0"


def host_size(*, ipv6: bool) -> int:
    """Return the encoded size in bytes."""
    return IPV6_HOST_SIZE if ipv6 else IPV4_HOST_SIZE


@lru_cache(maxsize=1024)  # the same few hosts come back with every message
def encode_host(host: str) -> bytes:
    """Encode ``address:port`` (IPv6 in brackets) as 8 or 20 bytes; ValueError if it is neither."""
    address, colon, port = host.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 0x7FFF_FFFF:
        raise ValueError(f"{host!r} is not ADDRESS:PORT")
    if address.startswith("[") and address.endswith("]"):
        return ipaddress.IPv6Address(address[1:-1].partition("%")[0]).packed + PORT.pack(int(port))
    return ipaddress.IPv4Address(address).packed + PORT.pack(int(port))


def decode_host(encoded: bytes | bytearray | memoryview) -> str:
    """Decode 8 or 20 bytes to ``address:port``; ValueError for any other length."""
    return _decoded(bytes(encoded))


@lru_cache(maxsize=1024)
def _decoded(raw: bytes) -> str:
    if len(raw) not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
        raise ValueError(f"a host takes 8 or 20 bytes, not {len(raw)}")
    address, (port,) = raw[:-4], PORT.unpack(raw[-4:])
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}:{port}"
    groups = (int.from_bytes(address[at : at + 2], "big") for at in range(0, 16, 2))
    return f"[{':'.join(format(group, 'x') for group in groups)}]:{port}"
