"""Whose name a certificate says, by the port that it is shown to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from certificates import Certificates
from users import make_users

from penstock import Client, PermissionDenied, Unauthenticated, Unavailable
from penstock.credentials import Credentials
from penstock.tls import TLS
from services.config.settings import ReaderSettings, WriterSettings
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.testing import FREE_PORT, SMALL_FILES, BackgroundService
from services.writer.__main__ import serve as serve_writer
from storage.accounts.account_table import SERVICES_USER
from storage.accounts.rules import UserKind


class PortsWithClientAuthorities(NamedTuple):
    certificates: Certificates
    writer: str
    gateway: str
    keys: dict[str, str]  # of alice, a super user, and bob

    def client(self, tls: TLS, **options: Any) -> Client:
        return Client(writer=self.writer, tls=tls, **options)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PortsWithClientAuthorities]:
    directory = tmp_path_factory.mktemp("certificates")
    certificates = Certificates(directory / "files")
    keys = make_users(directory / "store", alice=UserKind.SUPER, bob=UserKind.NORMAL)
    common: dict[str, Any] = {
        "store": directory / "store",
        "listen": FREE_PORT,
        "accounts": True,
        **certificates.mutual,
    }
    with (
        BackgroundService(serve_writer, WriterSettings(**common, **SMALL_FILES)) as writer,
        BackgroundService(
            serve_reader,
            ReaderSettings(
                **common,
                writer_address=writer.address,
                gateway_listen=FREE_PORT,
                gateway_client_ca=certificates.ca,
            ),
        ) as reader,
    ):
        yield PortsWithClientAuthorities(certificates, writer.address, reader.gateway_address, keys)


def test_a_certificate_that_the_gateway_s_port_takes_names_no_user(
    ports: PortsWithClientAuthorities,
) -> None:
    signed = Credentials("alice", ports.keys["alice"]).metadata()
    with ports.certificates.channel(ports.gateway, ports.certificates.alice) as channel:
        stub: Any = service_pb2_grpc.MessagingServiceStub(channel)

        def code(metadata: Any) -> int:
            request = service_pb2.QueryRouteRequest(topic=v2.Resource(name="none"))
            return int(stub.QueryRoute(request, metadata=metadata, timeout=20).status.code)

        assert code(()) == v2.UNAUTHORIZED
        assert code(signed) == v2.TOPIC_NOT_FOUND


def test_a_certificate_s_name_is_a_user_s_and_a_signature_comes_first(
    ports: PortsWithClientAuthorities,
) -> None:
    """It cannot be that of the store's own services."""
    certificates = ports.certificates
    with ports.client(certificates.alice) as alice:
        assert [user.name for user in alice.users()] == ["alice", "bob"]
    signed = {"access_key": "bob", "secret_key": ports.keys["bob"]}
    with (
        ports.client(certificates.alice, **signed) as bob,
        pytest.raises(PermissionDenied, match="bob"),
    ):
        bob.users()
    for name in ("mallory", SERVICES_USER):
        files = certificates.issue(name)
        foreign = TLS(ca=certificates.ca, cert=files.cert, key=files.key)
        with ports.client(foreign) as nobody, pytest.raises(Unauthenticated):
            nobody.topics()
    with (
        ports.client(certificates.one_sided, timeout_s=2) as without,
        pytest.raises(Unavailable),
    ):
        without.users()
