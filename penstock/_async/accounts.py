"""Accounts: users, their secrets and policies. A super user's calls."""

from __future__ import annotations

from penstock._async.connection import AsyncConnection
from penstock.account_values import Limits, NewSecret, Policy, User, UserKind
from penstock.calls import accounts


class AsyncAccounts(AsyncConnection):
    """Accounts over a connection. A change is in force in all services when its call returns."""

    async def create_user(
        self, name: str, kind: UserKind = "normal", *, timeout_s: float | None = None
    ) -> NewSecret:
        """Create a user with a secret, which nothing shows again. Raises UserExists."""
        return await self.run(accounts.create_user(name, kind), timeout_s=timeout_s)

    async def update_user(
        self,
        name: str,
        *,
        kind: UserKind | None = None,
        enabled: bool | None = None,
        drop_old_secrets: bool = False,
        limits: Limits | None = None,
        reset_limits: bool = False,
        timeout_s: float | None = None,
    ) -> User:
        """Change what is given of a user. Raises UserNotFound, InvalidArgument.

        With ``drop_old_secrets`` its newest secret alone stays good. With ``reset_limits`` it has no other limits
        of its own than those that are given.
        """
        call = accounts.update_user(
            name,
            kind=kind,
            enabled=enabled,
            drop_old_secrets=drop_old_secrets,
            limits=limits,
            reset_limits=reset_limits,
        )
        return await self.run(call, timeout_s=timeout_s)

    async def add_secret(self, name: str, *, timeout_s: float | None = None) -> NewSecret:
        """Give a user a second secret; both are good until the old one is dropped.

        Raises UserNotFound, and InvalidArgument for a user with two.
        """
        return await self.run(accounts.add_secret(name), timeout_s=timeout_s)

    async def delete_user(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a user and its policies. Raises UserNotFound."""
        await self.run(accounts.delete_user(name), timeout_s=timeout_s)

    async def users(self, *, timeout_s: float | None = None) -> list[User]:
        """Return all users, by name."""
        return await self.run(accounts.list_users(), timeout_s=timeout_s)

    async def put_policy(
        self, policy: Policy, *, exists: bool | None = None, timeout_s: float | None = None
    ) -> Policy:
        """Add a policy, in the place of one of the user for the same resource with the same decision.

        ``exists`` says whether there has to be such a one; None for either. Raises PolicyExists, PolicyNotFound,
        UserNotFound, InvalidArgument.
        """
        return await self.run(accounts.put_policy(policy, exists=exists), timeout_s=timeout_s)

    async def delete_policies(
        self, user: str, resource: str = "", *, timeout_s: float | None = None
    ) -> int:
        """Delete a user's policies for a resource, or all; return how many. Raises UserNotFound,
        PolicyNotFound.
        """
        return await self.run(accounts.delete_policies(user, resource), timeout_s=timeout_s)

    async def policies(self, user: str = "", *, timeout_s: float | None = None) -> list[Policy]:
        """Return the policies of a user, or of all."""
        return await self.run(accounts.list_policies(user), timeout_s=timeout_s)
