"""A handshake without a network: whether services that have the same certificate can call each other."""

from __future__ import annotations

import ssl
from typing import Final

from penstock.tls import BadTlsFile

ROUNDS_MAX: Final = 10  # of flights there and back; TLS 1.3 takes two


def check_own_calls(*, cert: str, key: str, ca: str, client_ca: str, host: str) -> None:
    """Raise BadTlsFile unless a service at ``host`` may be called by one with the same files.

    ``client_ca`` is empty where a service asks for no certificate.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (serving, calling):
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # how strong a key is, is for gRPC to judge
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC has it
        context.load_cert_chain(cert, key)
    calling.load_verify_locations(ca)
    if client_ca:
        serving.load_verify_locations(client_ca)
        serving.verify_mode = ssl.CERT_REQUIRED
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        calling.wrap_bio(back, there, server_hostname=host),
        serving.wrap_bio(there, back, server_side=True),
    )
    checked = ca
    try:
        for _ in range(ROUNDS_MAX):
            for end, file in zip(ends, (ca, client_ca), strict=True):
                checked = file
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error.reason or str(error)
        raise BadTlsFile(
            f"{cert}: the services, which call each other at {host}, do not take it by {checked}: {why}"
        ) from None
