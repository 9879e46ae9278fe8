"""Accounts in a file: changes are durable and seen, what is broken is refused, secrets stay with their owner."""

import json
import stat

import pytest
from full_filesystem import FullableFileSystem

from storage.accounts.account_table import SERVICES_USER, AccountFile, AccountTable, listed_users
from storage.accounts.limits import Limits
from storage.accounts.rules import Action, Resource, UserKind, checked_policy
from storage.errors import (
    BrokenAccounts,
    InvalidMessage,
    PolicyExists,
    PolicyNotFound,
    StoreFull,
    UserExists,
    UserNotFound,
)
from storage.files.filesystem import FileSystem
from storage.tables.checked_json import decode_checked, encode_checked

ORDERS = Resource.topic("orders")


@pytest.fixture
def table(tmp_path):
    return AccountTable(FileSystem(), tmp_path)


def pub_policy(**changes):
    return checked_policy(
        **{"user": "ann", "resource": "Topic:orders", "actions": ["Pub"], **changes}
    )


def test_what_was_changed_is_there_after_a_restart(table, tmp_path):
    ann = table.create_user("ann", UserKind.NORMAL)
    table.put_policy(pub_policy(sources=["10.0.0.0/8", "::1"]))
    table.put_policy(pub_policy(decision="deny", is_default=True))
    again = AccountTable(FileSystem(), tmp_path)
    assert again.rules == table.rules
    assert again.rules.users["ann"] == ann


def test_the_file_is_its_owners_alone_and_texts_show_no_secret(table, tmp_path):
    ann = table.create_user("ann", UserKind.NORMAL)
    assert stat.S_IMODE((tmp_path / "accounts.json").stat().st_mode) == 0o600
    assert ann.secrets[0] not in repr(ann) + repr(table.rules)


def test_another_process_sees_a_change_with_its_next_look(table, tmp_path):
    file = AccountFile(FileSystem(), tmp_path)
    assert not file.rules().users
    ann = table.create_user("ann", UserKind.NORMAL)
    assert not file.rules().allows(ann, ORDERS, Action.PUB, None)
    table.put_policy(pub_policy())
    assert file.rules().allows(ann, ORDERS, Action.PUB, None)
    assert file.rules() is file.rules()


def test_a_user_has_two_secrets_while_they_rotate(table):
    (first,) = table.create_user("ann", UserKind.NORMAL).secrets
    second = table.update_user("ann", adds_secret=True).secrets[-1]
    assert table.rules.users["ann"].secrets == (first, second)
    with pytest.raises(InvalidMessage, match="drop the old one"):
        table.update_user("ann", adds_secret=True)
    assert table.update_user("ann", drops_old_secrets=True).secrets == (second,)


def test_a_policy_replaces_the_one_of_its_place_alone(table):
    table.create_user("ann", UserKind.NORMAL)
    table.put_policy(pub_policy())
    table.put_policy(pub_policy(decision="deny"))
    table.put_policy(pub_policy(actions=["Sub"]))
    assert [(each.decision, *each.actions) for each in table.rules.policies["ann"]] == [
        ("deny", "Pub"),
        ("allow", "Sub"),
    ]
    assert table.delete_policies("ann", "Topic:orders") == 2
    with pytest.raises(PolicyNotFound):
        table.delete_policies("ann", "")


def test_a_deleted_user_takes_its_policies_along(table):
    table.create_user("ann", UserKind.NORMAL)
    table.put_policy(pub_policy())
    table.delete_user("ann")
    table.create_user("ann", UserKind.NORMAL)
    assert not table.rules.policies.get("ann")


def test_names_that_are_taken_or_unknown_are_refused(table):
    table.create_user("ann", UserKind.NORMAL)
    with pytest.raises(UserExists):
        table.create_user("ann", UserKind.SUPER)
    for change in (
        lambda: table.update_user("bob", is_enabled=False),
        lambda: table.delete_user("bob"),
        lambda: table.put_policy(pub_policy(user="bob")),
        lambda: table.delete_policies("bob", ""),
    ):
        with pytest.raises(UserNotFound):
            change()


def test_the_services_own_user_is_not_listed_and_cannot_be_changed(table):
    table.renew_services_user()
    assert not listed_users(table.rules)
    with pytest.raises(UserNotFound):
        table.update_user(SERVICES_USER, adds_secret=True)


def test_the_services_own_secret_is_new_at_each_start_and_the_one_before_is_good(table):
    secrets = []
    for _ in range(3):
        table.renew_services_user()
        secrets.append(table.rules.users[SERVICES_USER].secrets)
    (first,) = secrets[0]
    assert secrets[1][0] == first
    assert secrets[2][0] == secrets[1][1]
    assert len({secret for each in secrets for secret in each}) == 3


def test_a_full_disk_leaves_the_services_with_the_secret_that_they_have(tmp_path):
    filesystem = FullableFileSystem()
    table = AccountTable(filesystem, tmp_path)
    table.renew_services_user()
    before = table.rules
    filesystem.full = "accounts"
    table.renew_services_user()
    assert table.rules is before


def test_a_file_that_could_not_be_read_is_read_again(table, tmp_path, caplog):
    class FailingReads(FileSystem):
        fails = False

        def read_bytes(self, path):
            if self.fails:
                raise OSError("a bad sector")
            return super().read_bytes(path)

    filesystem = FailingReads()
    file = AccountFile(filesystem, tmp_path)
    filesystem.fails = True
    table.create_user("ann", UserKind.NORMAL)
    for _ in range(2):
        assert not file.rules().users
    assert caplog.text.count("a bad sector") == 1
    filesystem.fails = False
    assert file.rules().users


def test_a_file_that_is_put_back_and_changed_has_another_generation(table, tmp_path):
    table.create_user("ann", UserKind.NORMAL)
    before = (tmp_path / "accounts.json").read_bytes()
    table.create_user("bob", UserKind.NORMAL)
    (tmp_path / "accounts.json").write_bytes(before)
    restored = AccountTable(FileSystem(), tmp_path)
    restored.create_user("eve", UserKind.NORMAL)
    assert restored.rules.generation != table.rules.generation


def test_a_policy_that_is_there_or_is_not_is_refused_to_who_says_so(table):
    table.create_user("ann", UserKind.NORMAL)
    with pytest.raises(PolicyNotFound, match="Topic:orders"):
        table.put_policy(pub_policy(), exists=True)
    table.put_policy(pub_policy(), exists=False)
    with pytest.raises(PolicyExists, match="Topic:orders"):
        table.put_policy(pub_policy(actions=["Sub"]), exists=False)
    table.put_policy(pub_policy(decision="deny"), exists=False)
    table.put_policy(pub_policy(actions=["Sub"]), exists=True)
    assert {action for each in table.rules.policies["ann"] for action in each.actions} == {
        Action.PUB,
        Action.SUB,
    }


@pytest.mark.parametrize(
    "break_it",
    [
        lambda text: text.replace('"Pub"', '"Sub"'),  # a right that nobody gave
        lambda text: text[: len(text) // 2],
        lambda _: "[]",
        lambda text: json.dumps({**json.loads(text), "formatVersion": 2, "checksum": None}),
    ],
)
def test_a_broken_file_is_refused_at_a_start_and_leaves_the_rules_before(
    table, tmp_path, break_it, caplog
):
    ann = table.create_user("ann", UserKind.NORMAL)
    table.put_policy(pub_policy())
    running = AccountFile(FileSystem(), tmp_path)
    path = tmp_path / "accounts.json"
    path.write_text(break_it(path.read_text()))
    assert running.rules().allows(ann, ORDERS, Action.PUB, None)
    running.rules()
    assert caplog.text.count("stay in force") == 1
    for opened in (AccountFile, AccountTable):
        with pytest.raises(BrokenAccounts, match=r"accounts\.json"):
            opened(FileSystem(), tmp_path)


def test_a_full_disk_leaves_the_accounts_as_they_were(tmp_path):
    filesystem = FullableFileSystem()
    table = AccountTable(filesystem, tmp_path)
    table.create_user("ann", UserKind.NORMAL)
    before = (tmp_path / "accounts.json").read_bytes()
    filesystem.full = "accounts"
    with pytest.raises(StoreFull):
        table.put_policy(pub_policy())
    assert not table.rules.policies
    assert (tmp_path / "accounts.json").read_bytes() == before


def test_limits_are_kept_and_those_that_are_not_given_stay(table, tmp_path):
    table.create_user("ann", UserKind.NORMAL)
    table.update_user("ann", limits=Limits(requests_per_second=5, calls_max=0))
    table.update_user("ann", limits=Limits(calls_max=7))
    again = AccountTable(FileSystem(), tmp_path)
    assert again.rules.users["ann"].limits == Limits(requests_per_second=5, calls_max=7)
    table.update_user("ann", limits=Limits(connections_max=1), resets_limits=True)
    assert table.rules.users["ann"].limits == Limits(connections_max=1)


@pytest.mark.parametrize("limits", [{"calls_max": -1}, {"calls": 1}, {"calls_max": "1"}, 5])
def test_a_file_with_limits_that_are_none_is_refused(table, tmp_path, limits):
    table.create_user("ann", UserKind.NORMAL)
    path = tmp_path / "accounts.json"
    document = decode_checked(path.read_bytes())
    document["users"]["ann"]["limits"] = limits
    path.write_bytes(encode_checked(document, indent=1))
    with pytest.raises(BrokenAccounts, match="not usable"):
        AccountTable(FileSystem(), tmp_path)


def test_the_last_super_user_who_may_call_stays(table):
    table.create_user("root", UserKind.SUPER)
    for change in (
        lambda: table.update_user("root", is_enabled=False),
        lambda: table.update_user("root", kind=UserKind.NORMAL),
        lambda: table.delete_user("root"),
    ):
        with pytest.raises(InvalidMessage, match="last super user"):
            change()
    table.create_user("other", UserKind.SUPER)
    table.delete_user("root")


def test_a_user_is_restored_with_a_new_secret_alone(table):
    table.create_user("root", UserKind.SUPER)
    lost = table.update_user("root", adds_secret=True).secrets
    table.create_user("other", UserKind.SUPER)
    table.update_user("root", is_enabled=False, kind=UserKind.NORMAL)
    restored = table.restore_user("root", UserKind.SUPER)
    assert restored.is_enabled and restored.kind is UserKind.SUPER
    assert len(restored.secrets) == 1 and restored.secrets[0] not in lost
    assert table.restore_user("new", UserKind.NORMAL).secrets
    with pytest.raises(UserExists):
        table.restore_user(SERVICES_USER, UserKind.SUPER)
