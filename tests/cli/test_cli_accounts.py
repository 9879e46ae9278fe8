"""``penstock user`` and ``penstock acl``, from the first super user of a store to be made on."""

from __future__ import annotations

import pytest
from run_cli import json_lines, penstock, small_services

from cli.failures import ExitCode


def made(*arguments):
    result = penstock(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json_lines(result)


@pytest.fixture
def as_user(monkeypatch):
    """Makes commands those of a user."""

    def act(keys):
        monkeypatch.setenv("PENSTOCK_ACCESS_KEY", keys["access_key"])
        monkeypatch.setenv("PENSTOCK_SECRET_KEY", keys["secret_key"])

    return act


def test_users_and_policies_from_a_new_store_to_a_rotated_key(tmp_path, as_user, monkeypatch):
    store = tmp_path / "store"
    (root,) = made("user", "create", "root", "--super", "--store", store)
    (again,) = made("user", "create", "root", "--super", "--store", store)
    assert again["secret_key"] != root["secret_key"]
    root = again
    with small_services(tmp_path, "--accounts") as services:
        at = [word for name, place in services.addresses.items() for word in (f"--{name}", place)]
        held = penstock("user", "create", "eve", "--super", "--store", store)
        assert held.exit_code == ExitCode.LOCKED
        nobody = penstock(*at, "topic", "list")
        assert nobody.exit_code == ExitCode.DENIED
        assert "sign it with an access key" in nobody.stderr

        as_user(root)
        made(*at, "topic", "create", "orders", "--queues", 1)
        (ann,) = made(*at, "user", "create", "ann")
        made(*at, "acl", "create", "ann", "Topic:orders*", "--actions", "Pub,Sub")
        (policy,) = made(*at, "acl", "list", "ann")
        assert (policy["resource"], policy["actions"]) == ("Topic:orders*", ["Pub", "Sub"])
        again = penstock(*at, "acl", "create", "ann", "Topic:orders*", "--actions", "Get")
        assert again.exit_code == ExitCode.USAGE
        assert "user 'ann' has a policy for Topic:orders* that says allow" in again.stderr
        made(*at, "acl", "update", "ann", "Topic:orders*", "--actions", "Pub,Sub,Get")
        (policy,) = made(*at, "acl", "list", "ann")
        assert policy["actions"] == ["Get", "Pub", "Sub"]
        none = penstock(*at, "acl", "update", "ann", "Topic:orders", "--actions", "Get")
        assert none.exit_code == ExitCode.NOT_FOUND
        assert "no policy for Topic:orders that says allow" in none.stderr
        wrong = penstock(*at, "acl", "create", "ann", "orders", "--actions", "Pub")
        assert wrong.exit_code == ExitCode.USAGE
        assert "Topic, Group, Cluster" in wrong.stderr

        as_user(ann)
        made(*at, "pub", "orders", "hello")
        assert penstock(*at, "status").exit_code == ExitCode.DENIED
        denied = penstock(*at, "topic", "create", "bills")
        assert denied.exit_code == ExitCode.DENIED
        assert denied.stderr == "penstock: user 'ann' lacks the right: Create on Topic:bills\n"

        as_user(root)
        (second,) = made(*at, "user", "update", "ann", "--new-secret")
        made(*at, "user", "update", "ann", "--drop-old-secret")
        as_user(ann)
        assert penstock(*at, "pub", "orders", "hello").exit_code == ExitCode.DENIED
        as_user(second)
        made(*at, "pub", "orders", "hello")

        as_user(root)
        limits = ("--requests-per-second", 1, "--bytes-per-second", "2MiB", "--calls-max", 0)
        made(*at, "user", "update", "ann", *limits)
        (limits,) = (user["limits"] for user in made(*at, "user", "list") if user["user"] == "ann")
        assert {name: value for name, value in limits.items() if value is not None} == {
            "requests_per_second": 1,
            "bytes_per_second": 2 << 20,
            "calls_max": 0,
        }
        shown = penstock(*at, "user", "update", "ann", "--calls-max", 5)
        assert "requests per second 1, bytes per second 2097152, calls max 5" in shown.stdout
        wrong = penstock(*at, "user", "update", "ann", "--bytes-per-second", "2 parsec")
        assert wrong.exit_code == ExitCode.USAGE
        assert "give bytes, for instance 64MiB" in wrong.stderr
        shown = penstock(*at, "user", "update", "ann", "--reset-limits")
        assert "limits: as the services are set" in shown.stdout
        assert penstock(*at, "user", "update", "ann").exit_code == ExitCode.USAGE
        made(*at, "user", "update", "ann", "--disable")
        users = {user["user"]: user["enabled"] for user in made(*at, "user", "list")}
        assert users == {"ann": False, "root": True}
        made(*at, "acl", "delete", "ann", "Topic:orders*")
        made(*at, "user", "delete", "ann", "--yes")
        gone = penstock(*at, "acl", "list", "ann", "--json")
        assert (gone.exit_code, gone.stdout) == (0, "")
    log = services.log.read_text()
    assert root["secret_key"] not in log
    assert ann["secret_key"] not in log
    assert '"account changed"' in log
    assert '"denied"' in log


def test_one_key_without_the_other_is_refused(monkeypatch):
    monkeypatch.setenv("PENSTOCK_ACCESS_KEY", "ann")
    monkeypatch.delenv("PENSTOCK_SECRET_KEY", raising=False)
    refused = penstock("topic", "list")
    assert refused.exit_code == ExitCode.USAGE
    assert "given together" in refused.stderr


def test_accounts_without_a_user_do_not_start(tmp_path):
    listen = [f"--{name}-listen=127.0.0.1:0" for name in ("writer", "reader", "indexer", "gateway")]
    result = penstock(
        "serve", "--store", tmp_path / "store", "--accounts", "--metrics-listen=none", *listen
    )
    assert result.exit_code == ExitCode.USAGE
