"""The certificate that the gateway shows on its port with TLS."""

from __future__ import annotations

import grpc

from services.settings import GatewaySettings


def tls_credentials(settings: GatewaySettings) -> grpc.ServerCredentials:
    """Read the PEM files of the certificate chain and its key; a new certificate takes a restart."""
    assert settings.tls_certificate is not None and settings.tls_key is not None
    chain, key = settings.tls_certificate.read_bytes(), settings.tls_key.read_bytes()
    return grpc.ssl_server_credentials([(key, chain)])
