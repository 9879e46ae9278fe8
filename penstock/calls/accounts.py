"""Accounts: users, their secrets and policies. A super user's calls."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.operation import operation
from penstock.requests import build, each, nothing, value, value_of
from penstock.retry import Repeat
from penstock.v1 import accounts_pb2 as pb
from storage.accounts.limits import Limits as Limits

UserKind: TypeAlias = Literal["normal", "super", "service"]
_NUMBER_OF: Final[dict[UserKind, pb.UserKind]] = {
    "normal": pb.NORMAL,
    "super": pb.SUPER,
    "service": pb.SERVICE,
}
_KIND_OF: Final = {number: kind for kind, number in _NUMBER_OF.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user. The name is also its access key; a second secret is good while applications change to it."""

    name: str
    kind: UserKind
    enabled: bool
    secret_count: int
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    """A user with a secret that nothing shows again."""

    user: User
    secret_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a user may do, or with ``deny`` may not: ``actions`` on a ``resource`` from ``sources``.

    A resource is ``Topic:NAME``, ``Topic:PREFIX*``, ``Group:...``, ``Cluster:*`` or ``*``. Actions are
    ``All``, or some of Pub, Sub, Create, Update, Delete, Get and List. Sources are addresses or networks;
    without one the policy holds from anywhere. A ``default`` policy is asked where no other policy of the
    user is about the resource.
    """

    user: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...] = ()
    deny: bool = False
    default: bool = False


class AccountOperations:
    """Accounts. A change is in force in all services when its call returns."""

    @operation
    def create_user(
        self, name: str, kind: UserKind = "normal", *, timeout_s: float | None = None
    ) -> Call[NewSecret]:
        """Create a user with a secret, which nothing shows again. Raises UserExists."""
        request = build(pb.CreateUserRequest, name=name, kind=_NUMBER_OF[kind])
        return Call(
            wire.CREATE_USER, request, _new_secret, repeat=Repeat.NEVER, timeout_s=timeout_s
        )

    @operation
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
    ) -> Call[User]:
        """Change what is given of a user. Raises UserNotFound, InvalidArgument.

        With ``drop_old_secrets`` its newest secret alone stays good. With ``reset_limits`` it has no other limits
        of its own than those that are given.
        """
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
            wire.UPDATE_USER, request, lambda answer: _user(answer.user), timeout_s=timeout_s
        )

    @operation
    def add_secret(self, name: str, *, timeout_s: float | None = None) -> Call[NewSecret]:
        """Give a user a second secret; both are good until the old one is dropped.

        Raises UserNotFound, and InvalidArgument for a user with two.
        """
        request = build(pb.UpdateUserRequest, name=name, add_secret=True)
        return Call(
            wire.UPDATE_USER, request, _new_secret, repeat=Repeat.NEVER, timeout_s=timeout_s
        )

    @operation
    def delete_user(self, name: str, *, timeout_s: float | None = None) -> Call[None]:
        """Delete a user and its policies. Raises UserNotFound."""
        request = build(pb.DeleteUserRequest, name=name)
        return Call(wire.DELETE_USER, request, nothing, repeat=Repeat.NEVER, timeout_s=timeout_s)

    @operation
    def users(self, *, timeout_s: float | None = None) -> Call[list[User]]:
        """Return all users, by name."""
        return Call(
            wire.LIST_USERS,
            pb.ListUsersRequest(),
            lambda answer: list(map(_user, answer.users)),
            timeout_s=timeout_s,
        )

    @operation
    def put_policy(
        self, policy: Policy, *, exists: bool | None = None, timeout_s: float | None = None
    ) -> Call[Policy]:
        """Add a policy, in the place of one of the user for the same resource with the same decision.

        ``exists`` says whether there has to be such a one; None for either. Raises PolicyExists, PolicyNotFound,
        UserNotFound, InvalidArgument.
        """
        message = build(pb.Policy, **asdict(policy))
        request = build(pb.PutPolicyRequest, policy=message, exists=exists)
        repeat = Repeat.NEVER if exists is False else Repeat.SAFE  # which would find it there
        return Call(wire.PUT_POLICY, request, value(Policy), repeat=repeat, timeout_s=timeout_s)

    @operation
    def delete_policies(
        self, user: str, resource: str = "", *, timeout_s: float | None = None
    ) -> Call[int]:
        """Delete a user's policies for a resource, or all; return how many. Raises UserNotFound,
        PolicyNotFound.
        """
        return Call(
            wire.DELETE_POLICIES,
            build(pb.DeletePoliciesRequest, user=user, resource=resource),
            lambda answer: int(answer.deleted_count),
            repeat=Repeat.NEVER,
            timeout_s=timeout_s,
        )

    @operation
    def policies(self, user: str = "", *, timeout_s: float | None = None) -> Call[list[Policy]]:
        """Return the policies of a user, or of all."""
        request = build(pb.ListPoliciesRequest, user=user)
        return Call(wire.LIST_POLICIES, request, each(Policy, "policies"), timeout_s=timeout_s)


def _user(message: Any) -> User:
    limits = Limits(**{field.name: value for field, value in message.limits.ListFields()})
    return value_of(User, message, kind=_KIND_OF[message.kind], limits=limits)


def _new_secret(answer: Any) -> NewSecret:
    return NewSecret(user=_user(answer.user), secret_key=answer.secret_key)
