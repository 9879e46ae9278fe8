"""What a handler learns of who calls over TLS, on both servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates, Files

from services.rpc.served_call import CallServer, Handler, ServedCall


def credentials(certificates: Certificates, files: list[Files]) -> grpc.ServerCredentials:
    """Credentials of a port that asks for clients' certificates, and shows the next of its own at each handshake."""

    def configuration(own: Files) -> Any:
        pair = own.key.read_bytes(), own.cert.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], certificates.ca.read_bytes())

    following = [configuration(each) for each in files[1:]]
    return grpc.dynamic_ssl_server_credentials(
        configuration(files[0]),
        lambda: following.pop(0) if following else None,
        require_client_authentication=True,
    )


async def ask(certificates: Certificates, client: Files, address: str) -> bytes:
    ca = certificates.ca.read_bytes()
    own = grpc.ssl_channel_credentials(ca, client.key.read_bytes(), client.cert.read_bytes())
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(address, own, options) as channel:
        answer: bytes = await channel.unary_unary("/a.B/C")(
            b"", metadata=(("x-name", "value"),), timeout=20
        )
        return answer


async def test_it_is_the_common_name_of_the_clients_certificate(
    server_type: type[CallServer], certificates: Certificates
) -> None:
    async def run(_request: bytes, call: ServedCall) -> bytes:
        assert call.auth_context()["transport_security_type"] == [b"ssl"]
        assert ("x-name", "value") in call.invocation_metadata()
        return str(call.peer_identity()).encode()

    server = server_type({"/a.B/C": Handler(False, run)}, (), calls_max=9)
    port = server.add_port("127.0.0.1:0", credentials(certificates, [certificates.server]))
    await server.start()
    try:
        assert await ask(certificates, certificates.client, f"127.0.0.1:{port}") == b"alice"
        bob = certificates.issue("bob")
        assert await ask(certificates, bob, f"localhost:{port}") == b"bob"
    finally:
        await server.stop(0)


async def test_a_port_shows_a_certificate_that_came_later(
    server_type: type[CallServer], certificates: Certificates, tmp_path: Path
) -> None:
    async def run(_request: bytes, _call: ServedCall) -> bytes:
        return b"fine"

    other = Certificates(tmp_path / "other")
    server = server_type({"/a.B/C": Handler(False, run)}, (), calls_max=9)
    shown = credentials(certificates, [other.server, other.server, certificates.server])
    port = server.add_port("127.0.0.1:0", shown)
    await server.start()
    try:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(certificates, certificates.client, f"127.0.0.1:{port}")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await ask(certificates, certificates.client, f"127.0.0.1:{port}") == b"fine"
    finally:
        await server.stop(0)
