"""A certificate authority in a directory, as ``penstock certs`` makes one."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.tls import identity

CA_DAYS: Final = 3_650
CLOCKS_DIFFER: Final = timedelta(hours=1)
_SIGNS: Final = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


class TrialAuthority:
    """Signs certificates, and writes them and their keys into its directory."""

    def __init__(
        self, directory: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        self._directory = directory
        self._certificate = certificate
        self._key = key

    @classmethod
    def of(cls, directory: Path) -> TrialAuthority:
        """Return the one that is in a directory, or a new one. Raises BadTlsFile, ValueError."""
        cert_file, key_file = directory / "ca.pem", directory / "ca.key"
        if cert_file.exists() or key_file.exists():
            own = identity(cert_file, key_file)
            found = serialization.load_pem_private_key(own.key, None)
            if not isinstance(found, ec.EllipticCurvePrivateKey):
                raise ValueError(f"{key_file} is not of an authority that penstock certs has made")
            return cls(directory, x509.load_pem_x509_certificate(own.chain), found)
        directory.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(f"Penstock trial CA {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        builder = (
            _builder(name, name, key, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS, critical=True)
        )
        authority = cls(directory, builder.sign(key, hashes.SHA256()), key)
        authority._write("ca", authority._certificate, key)
        return authority

    def certify(
        self, file: str, common_name: str, *, names: Sequence[x509.GeneralName], days: int
    ) -> None:
        """Write a certificate and its key: of services with ``names``, of a client without."""
        key = ec.generate_private_key(ec.SECP256R1())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(_named(common_name), self._certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(signer, critical=False)
        )
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]  # of services, too: they call each other
        if names:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        self._write(file, builder.sign(self._key, hashes.SHA256()), key)

    def _write(
        self, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        _replace(self._directory / f"{file}.key", secret, mode=0o600)
        public = certificate.public_bytes(serialization.Encoding.PEM)
        _replace(self._directory / f"{file}.pem", public, mode=0o644)


def host_name(host: str) -> x509.GeneralName:
    """Return a host as a certificate names it. Raises ValueError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        if not host or any(sign in host for sign in ":/ ") or not host.isascii():
            raise ValueError(
                f"--host: {host!r} is neither a name of ASCII letters nor an IP address"
            ) from None
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.replace(path)
