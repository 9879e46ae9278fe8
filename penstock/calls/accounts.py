"""Calls about accounts: users and policies."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from penstock import wire
from penstock.account_values import Limits, NewSecret, Policy, User, UserKind
from penstock.calls.call import Call
from penstock.errors import UserNotFound
from penstock.requests import build, value_of
from penstock.retry import Repeat
from penstock.v1 import accounts_pb2 as pb

_NUMBER_OF: Final[dict[UserKind, pb.UserKind]] = {
    "normal": pb.NORMAL,
    "super": pb.SUPER,
    "service": pb.SERVICE,
}
_KIND_OF: Final = {number: kind for kind, number in _NUMBER_OF.items()}


def create_user(name: str, kind: UserKind) -> Call[NewSecret]:
    """Create a user; a repeat would find it there."""
    request = build(pb.CreateUserRequest, name=name, kind=_NUMBER_OF[kind])
    return Call(wire.CREATE_USER, request, _new_secret, repeat=Repeat.NEVER)


def update_user(
    name: str,
    *,
    kind: UserKind | None,
    enabled: bool | None,
    drop_old_secrets: bool,
    limits: Limits | None,
    reset_limits: bool,
) -> Call[User]:
    """Set what is given; doing so twice sets the same."""
    request = build(
        pb.UpdateUserRequest,
        name=name,
        kind=pb.USER_KIND_UNSPECIFIED if kind is None else _NUMBER_OF[kind],
        enabled=enabled,
        drop_old_secrets=drop_old_secrets,
        limits=None if limits is None else build(pb.Limits, **asdict(limits)),
        reset_limits=reset_limits,
    )
    return Call(
        wire.UPDATE_USER, request, lambda answer: _user(answer.user), not_found=UserNotFound
    )


def add_secret(name: str) -> Call[NewSecret]:
    """Give a user a second secret; a repeat would find it has two."""
    request = build(pb.UpdateUserRequest, name=name, add_secret=True)
    return Call(wire.UPDATE_USER, request, _new_secret, repeat=Repeat.NEVER, not_found=UserNotFound)


def delete_user(name: str) -> Call[None]:
    """Delete a user; a repeat would not find it."""
    return Call(
        wire.DELETE_USER,
        build(pb.DeleteUserRequest, name=name),
        lambda _: None,
        repeat=Repeat.NEVER,
        not_found=UserNotFound,
    )


def list_users() -> Call[list[User]]:
    """Ask for all users."""
    return Call(
        wire.LIST_USERS, pb.ListUsersRequest(), lambda answer: list(map(_user, answer.users))
    )


def put_policy(policy: Policy, *, exists: bool | None) -> Call[Policy]:
    """Add or replace a policy; doing so twice sets the same, but a repeat would find a new one there."""
    message = build(pb.Policy, **asdict(policy))
    request = build(pb.PutPolicyRequest, policy=message, exists=exists)
    repeat = Repeat.NEVER if exists is False else Repeat.SAFE
    return Call(wire.PUT_POLICY, request, _policy, repeat=repeat, not_found=UserNotFound)


def delete_policies(user: str, resource: str) -> Call[int]:
    """Delete policies; a repeat would not find them."""
    return Call(
        wire.DELETE_POLICIES,
        build(pb.DeletePoliciesRequest, user=user, resource=resource),
        lambda answer: int(answer.deleted_count),
        repeat=Repeat.NEVER,
        not_found=UserNotFound,
    )


def list_policies(user: str) -> Call[list[Policy]]:
    """Ask for the policies of a user, or of all."""
    return Call(
        wire.LIST_POLICIES,
        build(pb.ListPoliciesRequest, user=user),
        lambda answer: list(map(_policy, answer.policies)),
    )


def _user(message: Any) -> User:
    limits = Limits(**{field.name: value for field, value in message.limits.ListFields()})
    return value_of(User, message, kind=_KIND_OF[message.kind], limits=limits)


def _new_secret(answer: Any) -> NewSecret:
    return NewSecret(user=_user(answer.user), secret_key=answer.secret_key)


def _policy(message: Any) -> Policy:
    return value_of(Policy, message)
