"""The services' default addresses, and the rules for an address: for services and clients."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final, Literal

Service = Literal["writer", "reader", "indexer"]
ALL_SERVICES: Final[tuple[Service, ...]] = ("writer", "reader", "indexer")

DEFAULT_WRITER: Final = "127.0.0.1:5801"
DEFAULT_READER: Final = "127.0.0.1:5802"
DEFAULT_INDEXER: Final = "127.0.0.1:5803"
DEFAULT_GATEWAY: Final = "127.0.0.1:8081"
DEFAULT_METRICS: Final = "127.0.0.1:5804"
DEFAULT_CONSOLE: Final = "127.0.0.1:5805"

WITHOUT_PROXY: Final = ("grpc.enable_http_proxy", 0)  # of channels between our own services

PORT_MAX: Final = (1 << 16) - 1
_HOST: Final = re.compile(r"[^\s:/\[\]]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Addresses:
    """``host:port`` of each service."""

    writer: str = DEFAULT_WRITER
    reader: str = DEFAULT_READER
    indexer: str = DEFAULT_INDEXER

    def of(self, service: Service) -> str:
        """Return the address of one service."""
        return {"writer": self.writer, "reader": self.reader, "indexer": self.indexer}[service]


def address_problem(address: str, *, port_min: int = 1) -> str:
    """Return what to change for it to be HOST:PORT, "" where nothing has to be.

    HOST is a name, an IPv4 address, or an IPv6 address in brackets. Port 0 is one to listen on.
    """
    if any(sign.isspace() for sign in address):
        return "take the blank out"
    if "/" in address:
        return f"give it without a scheme or path, like {DEFAULT_WRITER}"
    if _is_v6(address) or _is_v6(address.rpartition(":")[0]):
        return "put the IPv6 address in brackets, like [::1]:5801"
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        return f"add the port, like {DEFAULT_WRITER}"
    if host.startswith("[") and host.endswith("]"):
        if not _is_v6(host[1:-1]):
            return "in brackets stands an IPv6 address, like [::1]:5801"
    elif not _HOST.fullmatch(host):
        return "the host is a name, an IPv4 address, or an IPv6 address in brackets"
    if not _PORT.fullmatch(port) or not port_min <= int(port) <= PORT_MAX:
        return f"the port is a number from {port_min} to {PORT_MAX}"
    return ""


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT is reached from this machine alone, by its host."""
    host = _ip_of(address)
    return host.is_loopback if host is not None else host_of(address).lower() == "localhost"


def is_this_machine(address: str) -> bool:
    """Whether a client reaches this machine at HOST:PORT, by its host: 0.0.0.0 and [::] included."""
    host = _ip_of(address)
    return is_loopback(address) or (host is not None and host.is_unspecified)


def channel_options(address: str) -> list[tuple[str, int]]:
    """Return the options of a client's channel to an address: no proxy has anything to do with this machine."""
    return [WITHOUT_PROXY] if is_this_machine(address) else []


def host_of(address: str) -> str:
    """Return the host of HOST:PORT, an IPv6 address without its brackets."""
    return address.rpartition("/")[2].rpartition(":")[0].strip("[]")


def _ip_of(address: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address of HOST:PORT, as IPv4 where an IPv6 address maps one; None for a name."""
    try:
        ip = ip_address(host_of(address))
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


def _is_v6(text: str) -> bool:
    try:
        return IPv6Address(text).scope_id is None
    except AddressValueError:
        return False
