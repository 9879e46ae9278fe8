"""/metrics of ``penstock serve`` beyond loopback, with TLS and accounts: who gets the page."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from certificates import Certificates
from run_cli import small_services

from storage.accounts.account_table import AccountTable
from storage.accounts.rules import UserKind, checked_policy
from storage.files.filesystem import FileSystem


class GuardedPage(NamedTuple):
    port: str
    certificates: Certificates
    secrets: dict[str, str]

    def get(self, user: str, secret: str) -> str:
        """Return the page; raises what urllib raises."""
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        request = urllib.request.Request(f"https://localhost:{self.port}/metrics")
        if user:
            given = base64.b64encode(f"{user}:{secret}".encode()).decode()
            request.add_header("Authorization", f"Basic {given}")
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedPage]:
    """Users: root; watcher, who may Get the Cluster; packer, who may not."""
    directory = tmp_path_factory.mktemp("guarded")
    certificates = Certificates(directory / "certs")
    table = AccountTable(FileSystem(), directory / "store" / "config")
    secrets = {"root": table.create_user("root", UserKind.SUPER).secrets[0]}
    for name in ("watcher", "packer"):
        secrets[name] = table.create_user(name, UserKind.NORMAL).secrets[0]
    table.put_policy(checked_policy(user="watcher", resource="Cluster:*", actions=["Get"]))
    options = [f"--{name.replace('_', '-')}={file}" for name, file in certificates.settings.items()]
    with small_services(directory, "--accounts", *options, metrics="0.0.0.0:0") as services:
        port = services.addresses["metrics"].rpartition(":")[2]
        yield GuardedPage(port, certificates, secrets)


@pytest.mark.parametrize("user", ["root", "watcher"])
def test_who_may_get_the_cluster_gets_the_page_of_all_services(
    guarded: GuardedPage, user: str
) -> None:
    page = guarded.get(user, guarded.secrets[user])
    for service in ("writer", "reader", "indexer"):
        assert f'penstock_up{{service="{service}"}} 1' in page
        assert f'penstock_tls_expiry_timestamp_seconds{{service="{service}"}} ' in page


@pytest.mark.parametrize(
    ("user", "status"), [("", 401), ("packer", 403), ("watcher ", 401), ("nobody", 401)]
)
def test_others_do_not(guarded: GuardedPage, user: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        guarded.get(user, guarded.secrets.get(user, guarded.secrets["watcher"]))
    assert refused.value.code == status
    assert refused.value.read() == b""


def test_in_plaintext_there_is_no_page(guarded: GuardedPage) -> None:
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(f"http://localhost:{guarded.port}/metrics", timeout=20)
