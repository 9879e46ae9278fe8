"""Whether an address is free: checked before a store is opened for it."""

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
    host, _, port = listen.rpartition(":")
    with suppress(socket.gaierror):  # the server reports it
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                raise CannotListen(listen) from error
