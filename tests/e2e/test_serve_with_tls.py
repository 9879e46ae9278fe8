"""A network's set-up as the documentation has it: ``certs``, ``serve`` with TLS, commands, new certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_processes import supervisor, until
from run_cli import penstock
from typer.testing import Result

from cli.failures import ExitCode


def test_serve_and_commands_speak_mutual_tls_and_take_up_new_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By variables, which a container's services and health checks share."""
    certs = tmp_path / "certs"
    assert penstock("certs", certs).exit_code == 0
    services = {
        "PENSTOCK_TLS_CERT": str(certs / "server.pem"),
        "PENSTOCK_TLS_KEY": str(certs / "server.key"),
        "PENSTOCK_TLS_CA": str(certs / "ca.pem"),
        "PENSTOCK_TLS_CLIENT_CA": str(certs / "ca.pem"),
    }
    flags = ("--gateway-listen", "127.0.0.1:0")
    with supervisor(tmp_path / "store", *flags, **services) as serve:
        for name in ("writer", "reader", "indexer", "gateway"):
            monkeypatch.setenv(f"PENSTOCK_{name.upper()}", serve.wait_serving(name)[0])

        def run(*arguments: object) -> Result:
            return penstock(
                "--tls-ca", certs / "ca.pem", "--tls-cert", certs / "client.pem", "--tls-key",
                certs / "client.key", *arguments,
            )  # fmt: skip

        assert run("topic", "create", "orders").exit_code == 0
        assert run("pub", "orders", "one").exit_code == 0
        assert run("sub", "orders").stdout.endswith("one\n")
        assert run("status").exit_code == 0
        assert run("clients").stdout == "no clients\n"
        gateway = serve.wait_serving("gateway")[0]
        assert penstock("--tls-ca", certs / "ca.pem", "health", gateway).exit_code == 0

        for name, value in services.items():
            monkeypatch.setenv(name, value)  # as of a container, whose service it is
        assert penstock("health", "writer").exit_code == 0
        monkeypatch.delenv("PENSTOCK_TLS_CA")
        for command, answer in (
            (("health", "writer"), "UNAVAILABLE; if the service serves TLS, give tls=TLS(ca=...)"),
            (("topic", "list"), "Socket closed; if the service serves TLS"),
            (("clients",), "if the service serves TLS"),
        ):
            shut = penstock("--timeout", "1", *command)
            assert (shut.exit_code, answer in shut.stderr) == (ExitCode.UNREACHABLE, True)
        wrong = penstock("--tls-ca", certs / "ca.key", "topic", "list")
        assert (wrong.exit_code, wrong.stderr) == (
            ExitCode.USAGE,
            f"penstock: {certs / 'ca.key'} is a private key, not a certificate\n",
        )

        assert penstock("certs", certs).exit_code == 0
        until(lambda: serve.text().count('"certificate taken up"') == 4)
        assert run("pub", "orders", "two").exit_code == 0
        assert serve.stop() == 0
