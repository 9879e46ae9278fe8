"""``penstock certs``: files that services and clients take, keys that nobody else reads."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from run_cli import json_lines, penstock

from cli.failures import ExitCode
from penstock.tls import identity


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names_of(path: Path) -> list[str]:
    found = load(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def test_certificates_are_signed_for_the_hosts_and_keys_are_private(tmp_path: Path) -> None:
    home = tmp_path / "certs"
    made = penstock(
        "certs", home, "--host", "db.example.com", "--host", "10.0.0.5", "--client", "alice"
    )
    assert made.exit_code == 0, made.stderr
    ca = load(home / "ca.pem")
    for name in ("server", "alice"):
        identity(home / f"{name}.pem", home / f"{name}.key")
        load(home / f"{name}.pem").verify_directly_issued_by(ca)
    assert names_of(home / "server.pem") == [
        "db.example.com", "10.0.0.5", "localhost", "127.0.0.1", "::1",
    ]  # fmt: skip
    [common_name] = load(home / "alice.pem").subject
    assert common_name.value == "alice"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert {mode for name, mode in modes.items() if name.endswith(".key")} == {0o600}
    assert len(modes) == 6


def test_an_authority_that_is_there_signs_again(tmp_path: Path) -> None:
    """Who trusts it goes on to."""
    first = json_lines(penstock("certs", tmp_path, "--json"))
    ca, server = (load(tmp_path / name) for name in ("ca.pem", "server.pem"))
    assert penstock("certs", tmp_path, "--days", "3").exit_code == 0
    assert load(tmp_path / "ca.pem") == ca
    again = load(tmp_path / "server.pem")
    again.verify_directly_issued_by(ca)
    assert again.serial_number != server.serial_number
    assert (again.not_valid_after_utc - again.not_valid_before_utc).days == 3
    assert first == [
        {
            "directory": str(tmp_path), "hosts": ["localhost", "127.0.0.1", "::1"], "clients": ["client"],
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--host", "a b"), "'a b' is neither a name"),
        (("--host", "db:5801"), "'db:5801' is neither a name"),
        (("--client", "../x"), "'../x' does not do for a file"),
        (("--client", "server"), "'server' does not do for a file"),
    ],
)
def test_names_that_do_not_do_make_nothing(
    arguments: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    refused = penstock("certs", tmp_path / "certs", *arguments)
    assert (refused.exit_code, (tmp_path / "certs").exists()) == (ExitCode.USAGE, False)
    assert problem in refused.stderr


def test_an_authority_without_its_key_is_one_line(tmp_path: Path) -> None:
    penstock("certs", tmp_path)
    (tmp_path / "ca.key").unlink()
    refused = penstock("certs", tmp_path)
    assert refused.exit_code == ExitCode.USAGE
    assert "ca.key: No such file or directory" in refused.stderr
