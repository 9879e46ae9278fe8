"""The gateway's second port, with TLS by certificate files, beside the plaintext one."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from free_ports import free_port
from gateway_bed import CLIENT
from service_settings import gateway_settings

from services.gateway.__main__ import main
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.testing import BackgroundService


def test_both_ports_serve_the_same(certificate: tuple[Path, Path]) -> None:
    port = free_port()
    settings = gateway_settings(
        tls_listen=f"127.0.0.1:{port}", tls_certificate=certificate[0], tls_key=certificate[1]
    )
    credentials = grpc.ssl_channel_credentials(certificate[0].read_bytes())
    with BackgroundService(serve_gateway, settings) as gateway:
        for channel in (
            grpc.insecure_channel(gateway.address),
            grpc.secure_channel(f"localhost:{port}", credentials),
        ):
            with channel:
                stub = service_pb2_grpc.MessagingServiceStub(channel)
                answer = stub.Heartbeat(service_pb2.HeartbeatRequest(), metadata=CLIENT, timeout=20)
                assert answer.status.code == v2.OK


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ((), "--tls-certificate is needed where a port serves TLS"),
        (
            ("--tls-certificate", "/nowhere/c.pem"),
            "--tls-certificate: /nowhere/c.pem is not a file",
        ),
    ],
)
def test_a_port_for_tls_without_its_files_is_one_line(
    flags: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", *flags])
    assert capsys.readouterr().err == f"penstock gateway: {problem}\n"


@pytest.mark.parametrize("broken", [0, 1], ids=["certificate", "key"])
def test_files_that_are_no_certificate_and_its_key_are_one_line(
    broken: int,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = list(certificate)
    files[broken] = tmp_path / "broken.pem"
    files[broken].write_text("no PEM")
    flags = ["--tls-certificate", str(files[0]), "--tls-key", str(files[1])]
    with pytest.raises(SystemExit, match="2"):
        main(["--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", *flags])
    assert capsys.readouterr().err.startswith(
        f"penstock gateway: {files[0]} and {files[1]} are no certificate and its private key: "
    )
