# Written by make client from penstock/_async: change it there.
"""Accounts: users, their secrets and policies. A super user's calls."""

from __future__ import annotations

from dataclasses import asdict

from penstock import wire
from penstock._sync.connection import Connection
from penstock.account_values import Limits, NewSecret, Policy, User, UserKind
from penstock.calls.accounts import (
    NUMBER_OF,
    deleted_count_of,
    new_secret_of,
    policies_of,
    policy_of,
    updated_user_of,
    users_of,
)
from penstock.calls.call import Call, nothing
from penstock.requests import build
from penstock.retry import Repeat
from penstock.v1 import accounts_pb2 as pb


class Accounts(Connection):
    """Accounts over a connection. A change is in force in all services when its call returns."""

    def create_user(
        self, name: str, kind: UserKind = "normal", *, timeout_s: float | None = None
    ) -> NewSecret:
        """Create a user with a secret, which nothing shows again. Raises UserExists."""
        request = build(pb.CreateUserRequest, name=name, kind=NUMBER_OF[kind])
        call = Call(wire.CREATE_USER, request, new_secret_of, repeat=Repeat.NEVER)
        return self.run(call, timeout_s=timeout_s)

    def update_user(
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
        request = build(
            pb.UpdateUserRequest,
            name=name,
            kind=pb.USER_KIND_UNSPECIFIED if kind is None else NUMBER_OF[kind],
            enabled=enabled,
            drop_old_secrets=drop_old_secrets,
            limits=None if limits is None else build(pb.Limits, **asdict(limits)),
            reset_limits=reset_limits,
        )
        call = Call(wire.UPDATE_USER, request, updated_user_of)
        return self.run(call, timeout_s=timeout_s)

    def add_secret(self, name: str, *, timeout_s: float | None = None) -> NewSecret:
        """Give a user a second secret; both are good until the old one is dropped.

        Raises UserNotFound, and InvalidArgument for a user with two.
        """
        request = build(pb.UpdateUserRequest, name=name, add_secret=True)
        call = Call(wire.UPDATE_USER, request, new_secret_of, repeat=Repeat.NEVER)
        return self.run(call, timeout_s=timeout_s)

    def delete_user(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a user and its policies. Raises UserNotFound."""
        request = build(pb.DeleteUserRequest, name=name)
        call = Call(wire.DELETE_USER, request, nothing, repeat=Repeat.NEVER)
        self.run(call, timeout_s=timeout_s)

    def users(self, *, timeout_s: float | None = None) -> list[User]:
        """Return all users, by name."""
        call = Call(wire.LIST_USERS, pb.ListUsersRequest(), users_of)
        return self.run(call, timeout_s=timeout_s)

    def put_policy(
        self, policy: Policy, *, exists: bool | None = None, timeout_s: float | None = None
    ) -> Policy:
        """Add a policy, in the place of one of the user for the same resource with the same decision.

        ``exists`` says whether there has to be such a one; None for either. Raises PolicyExists, PolicyNotFound,
        UserNotFound, InvalidArgument.
        """
        message = build(pb.Policy, **asdict(policy))
        request = build(pb.PutPolicyRequest, policy=message, exists=exists)
        repeat = Repeat.NEVER if exists is False else Repeat.SAFE  # which would find it there
        call = Call(wire.PUT_POLICY, request, policy_of, repeat=repeat)
        return self.run(call, timeout_s=timeout_s)

    def delete_policies(
        self, user: str, resource: str = "", *, timeout_s: float | None = None
    ) -> int:
        """Delete a user's policies for a resource, or all; return how many. Raises UserNotFound,
        PolicyNotFound.
        """
        request = build(pb.DeletePoliciesRequest, user=user, resource=resource)
        call = Call(wire.DELETE_POLICIES, request, deleted_count_of, repeat=Repeat.NEVER)
        return self.run(call, timeout_s=timeout_s)

    def policies(self, user: str = "", *, timeout_s: float | None = None) -> list[Policy]:
        """Return the policies of a user, or of all."""
        request = build(pb.ListPoliciesRequest, user=user)
        call = Call(wire.LIST_POLICIES, request, policies_of)
        return self.run(call, timeout_s=timeout_s)
