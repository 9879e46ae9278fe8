"""The methods of penstock.v1.Accounts and of penstock.v1.Authentication. Each change is durable, and in force
in this process, on its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from penstock.v1 import accounts_pb2 as pb
from services.accounts.audit import AuditLog
from services.accounts.principal import PRINCIPAL
from services.accounts.signatures import Signed, signing_secret_id
from services.rpc.servicer import Context
from services.rpc.status import NotServed
from storage.accounts.account_table import AccountTable, listed_users
from storage.accounts.document import encode_rules
from storage.accounts.limits import Limits, checked_limits
from storage.accounts.rules import (
    Policy,
    Rules,
    User,
    UserKind,
    checked_policy,
    without_secrets,
)

_OFF: Final = "accounts are off; start the services with --accounts"
_KIND_OF: Final = {
    pb.USER_KIND_UNSPECIFIED: UserKind.NORMAL,
    pb.NORMAL: UserKind.NORMAL,
    pb.SUPER: UserKind.SUPER,
    pb.SERVICE: UserKind.SERVICE,
}
_NUMBER_OF: Final = {
    UserKind.NORMAL: pb.NORMAL,
    UserKind.SUPER: pb.SUPER,
    UserKind.SERVICE: pb.SERVICE,
}


class AuthenticationServicer:
    """The methods of penstock.v1.Authentication."""

    def __init__(self, rules: Callable[[], Rules] | None) -> None:
        """Without rules every method is refused: accounts are off."""
        self._of_store = rules

    def _rules(self) -> Rules:
        if self._of_store is None:
            raise NotServed(_OFF)
        return self._of_store()

    async def get_rules(self, request: pb.GetRulesRequest, _context: Context) -> pb.RulesSnapshot:
        """Return the rules without secrets, if the caller has others."""
        rules = self._rules()
        document = (
            b"" if rules.generation == request.generation else encode_rules(without_secrets(rules))
        )
        return pb.RulesSnapshot(generation=rules.generation, document=document)

    async def verify_signature(
        self, request: pb.VerifySignatureRequest, _context: Context
    ) -> pb.VerifySignatureResponse:
        """Return which secret signed."""
        signed = Signed(request.access_key, request.date, request.signature)
        return pb.VerifySignatureResponse(secret_id=signing_secret_id(self._rules(), signed))


class AccountServicer:
    """Lists and changes users and policies."""

    def __init__(self, table: AccountTable | None, audit: AuditLog) -> None:
        """Without a table every method is refused: accounts are off."""
        self._of_store = table
        self._audit = audit

    @property
    def _table(self) -> AccountTable:
        if self._of_store is None:
            raise NotServed(_OFF)
        return self._of_store

    async def create_user(
        self, request: pb.CreateUserRequest, _context: Context
    ) -> pb.UserWithSecret:
        """Create a user with a secret."""
        kind = _KIND_OF.get(request.kind, UserKind.NORMAL)
        user = await asyncio.to_thread(self._table.create_user, request.name, kind)
        self._changed("create user", user=user.name, kind=kind)
        return pb.UserWithSecret(user=_user(user), secret_key=user.secrets[-1])

    async def update_user(
        self, request: pb.UpdateUserRequest, _context: Context
    ) -> pb.UserWithSecret:
        """Change what is given of a user."""
        user = await asyncio.to_thread(
            self._table.update_user,
            request.name,
            kind=_KIND_OF.get(request.kind) if request.kind else None,
            is_enabled=request.enabled if request.HasField("enabled") else None,
            adds_secret=request.add_secret,
            drops_old_secrets=request.drop_old_secrets,
            limits=_limits(request.limits),
            resets_limits=request.reset_limits,
        )
        self._changed(
            "update user",
            user=user.name,
            kind=user.kind,
            enabled=user.is_enabled,
            secret_added=request.add_secret,
            old_secrets_dropped=request.drop_old_secrets,
            limits=user.limits.given,
        )
        secret = user.secrets[-1] if request.add_secret else ""
        return pb.UserWithSecret(user=_user(user), secret_key=secret)

    async def delete_user(
        self, request: pb.DeleteUserRequest, _context: Context
    ) -> pb.DeleteUserResponse:
        """Delete a user and its policies."""
        await asyncio.to_thread(self._table.delete_user, request.name)
        self._changed("delete user", user=request.name)
        return pb.DeleteUserResponse()

    async def list_users(
        self, _request: pb.ListUsersRequest, _context: Context
    ) -> pb.ListUsersResponse:
        """Return the users, without their secrets."""
        return pb.ListUsersResponse(users=map(_user, listed_users(self._table.rules)))

    async def put_policy(self, request: pb.PutPolicyRequest, _context: Context) -> pb.Policy:
        """Add or replace a policy."""
        given = request.policy
        policy = checked_policy(
            user=given.user,
            resource=given.resource,
            actions=given.actions,
            sources=given.sources,
            decision="deny" if given.deny else "allow",
            is_default=given.default,
        )
        exists = request.exists if request.HasField("exists") else None
        await asyncio.to_thread(self._table.put_policy, policy, exists=exists)
        message = _policy(policy)
        self._changed(
            "put policy",
            user=policy.user,
            resource=message.resource,
            actions=list(message.actions),
            sources=list(message.sources),
            decision=policy.decision,
            default=policy.is_default,
        )
        return message

    async def delete_policies(
        self, request: pb.DeletePoliciesRequest, _context: Context
    ) -> pb.DeletePoliciesResponse:
        """Delete a user's policies for a resource, or all."""
        count = await asyncio.to_thread(self._table.delete_policies, request.user, request.resource)
        self._changed("delete policies", user=request.user, resource=request.resource, count=count)
        return pb.DeletePoliciesResponse(deleted_count=count)

    async def list_policies(
        self, request: pb.ListPoliciesRequest, _context: Context
    ) -> pb.ListPoliciesResponse:
        """Return the policies of a user, or of all."""
        policies = self._table.rules.policies
        return pb.ListPoliciesResponse(
            policies=[
                _policy(policy)
                for name in sorted(policies)
                if request.user in ("", name)
                for policy in policies[name]
            ]
        )

    def _changed(self, what: str, **about: Any) -> None:
        caller = PRINCIPAL.get()
        self._audit.changed(what, by=caller.name if caller else "", **about)


def _user(user: User) -> pb.User:
    return pb.User(
        name=user.name,
        kind=_NUMBER_OF[user.kind],
        enabled=user.is_enabled,
        secret_count=len(user.secrets),
        limits=pb.Limits(**user.limits.given),
    )


def _limits(message: pb.Limits) -> Limits:
    return checked_limits({field.name: value for field, value in message.ListFields()})


def _policy(policy: Policy) -> pb.Policy:
    return pb.Policy(
        user=policy.user,
        resource=str(policy.pattern),
        actions=sorted(policy.actions),
        sources=map(str, policy.sources),
        deny=policy.decision == "deny",
        default=policy.is_default,
    )
