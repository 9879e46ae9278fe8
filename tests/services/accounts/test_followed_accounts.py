"""Accounts that change while a process runs: its own keys, and the rules of a gateway on another machine."""

from structlog.testing import capture_logs

from penstock.v1 import accounts_pb2
from services import loops
from services.accounts.opening import read_accounts
from services.accounts.remote import RemoteAccounts
from services.accounts.signatures import carried, signed_by, signing_secret_id
from services.config.settings import IndexerSettings
from storage.accounts.account_table import AccountTable
from storage.accounts.document import encode_rules
from storage.accounts.rules import UserKind
from storage.files.filesystem import FileSystem


def test_a_process_signs_with_the_newest_secret_of_its_services(tmp_path):
    table = AccountTable(FileSystem(), tmp_path / "config")
    table.renew_services_user()
    accounts, _ = read_accounts(IndexerSettings(store=tmp_path, accounts=True))
    for _ in range(2):
        signed = signed_by(*carried(accounts.metadata()))
        newest = table.rules.users[signed.access_key].secret_ids[-1]
        assert signing_secret_id(table.rules, signed) == newest
        table.renew_services_user()


def test_rules_that_cannot_be_read_are_named_and_those_to_come_are_taken(tmp_path):
    table = AccountTable(FileSystem(), tmp_path)
    table.create_user("ann", UserKind.NORMAL)

    documents = [b"broken", b"broken", encode_rules(table.rules)]

    class Reader:
        async def call(self, path, request):
            document = documents.pop(0) if documents else b""
            return accounts_pb2.RulesSnapshot(document=document).SerializeToString()

        async def close(self):
            pass

    async def follow():
        accounts = RemoteAccounts(Reader())
        for _ in range(3):
            await accounts._look()
        users = set(accounts.rules().users)
        await accounts.close()
        return users

    with capture_logs() as told:
        assert loops.run(follow()) == {"ann"}
    assert [line["event"] for line in told] == ["no rules from the reader"]
    assert "not usable" in told[0]["problem"]
