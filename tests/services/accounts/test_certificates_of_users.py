"""Whose name a certificate says, by the port that it is shown to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from certificates import Certificates

from penstock import Client, Unauthenticated
from penstock.credentials import Credentials
from penstock.tls import TLS
from services.config.settings import ReaderSettings, WriterSettings
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.testing import FREE_PORT, SMALL_FILES, BackgroundService
from services.writer.__main__ import serve as serve_writer
from storage.accounts.account_table import SERVICES_USER, AccountTable
from storage.accounts.rules import UserKind
from storage.files.filesystem import OsFileSystem


class PortsWithClientAuthorities(NamedTuple):
    certificates: Certificates
    writer: str
    gateway: str
    secret: str  # of alice, a super user


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PortsWithClientAuthorities]:
    directory = tmp_path_factory.mktemp("certificates")
    certificates = Certificates(directory / "files")
    table = AccountTable(OsFileSystem(), directory / "store" / "config")
    secret = table.create_user("alice", UserKind.SUPER).secrets[0]
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
        yield PortsWithClientAuthorities(
            certificates, writer.address, reader.gateway_address, secret
        )


def test_a_certificate_that_the_gateway_s_port_takes_names_no_user(
    ports: PortsWithClientAuthorities,
) -> None:
    signed = Credentials("alice", ports.secret).metadata()
    with ports.certificates.channel(ports.gateway, ports.certificates.alice) as channel:
        stub: Any = service_pb2_grpc.MessagingServiceStub(channel)

        def code(metadata: Any) -> int:
            request = service_pb2.QueryRouteRequest(topic=v2.Resource(name="none"))
            return int(stub.QueryRoute(request, metadata=metadata, timeout=20).status.code)

        assert code(()) == v2.UNAUTHORIZED
        assert code(signed) == v2.TOPIC_NOT_FOUND


def test_a_certificate_cannot_name_the_store_s_own_services(
    ports: PortsWithClientAuthorities,
) -> None:
    files = ports.certificates.issue(SERVICES_USER)
    tls = TLS(ca=ports.certificates.ca, cert=files.cert, key=files.key)
    with Client(writer=ports.writer, tls=tls) as client, pytest.raises(Unauthenticated):
        client.topics()
    with Client(writer=ports.writer, tls=ports.certificates.alice) as client:
        assert client.topics() == []
