"""Whether an address is free, checked before a store is opened for it; and ports that are kept free."""

from __future__ import annotations

import socket
from contextlib import suppress

from storage.errors import StoreError


class CannotListen(StoreError):
    """The address is taken, or is not one of this machine's."""

    def __init__(self, listen: str) -> None:
        super().__init__(f"cannot listen on {listen}: is the address taken?")


def check_free(listen: str) -> None:
    """Raise CannotListen if something listens on HOST:PORT, or nothing could."""
    with suppress(socket.gaierror):  # the server reports it
        _bound(listen).close()


def keep_port(listen: str) -> tuple[str, socket.socket]:
    """Choose a free port for HOST:0; return HOST:PORT and what keeps it until it is closed.

    Nobody else is given the port meanwhile, and a server listens on it all the same: both sockets may use
    the address again (SO_REUSEADDR), and this one does not listen. Raises CannotListen.
    """
    host = listen.rpartition(":")[0]
    try:
        kept = _bound(listen)
    except socket.gaierror as error:
        raise CannotListen(listen) from error
    return f"{host}:{kept.getsockname()[1]}", kept


def _bound(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise CannotListen(listen) from error
    return bound
