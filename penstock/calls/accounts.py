"""Accounts in requests and answers: users and policies."""

from __future__ import annotations

from typing import Any, Final

from penstock.account_values import Limits, NewSecret, Policy, User, UserKind
from penstock.requests import value_of
from penstock.v1 import accounts_pb2 as pb

NUMBER_OF: Final[dict[UserKind, pb.UserKind]] = {
    "normal": pb.NORMAL,
    "super": pb.SUPER,
    "service": pb.SERVICE,
}
_KIND_OF: Final = {number: kind for kind, number in NUMBER_OF.items()}


def _user(message: Any) -> User:
    limits = Limits(**{field.name: value for field, value in message.limits.ListFields()})
    return value_of(User, message, kind=_KIND_OF[message.kind], limits=limits)


def updated_user_of(answer: Any) -> User:
    """Return the user that was changed."""
    return _user(answer.user)


def new_secret_of(answer: Any) -> NewSecret:
    """Return a user with its new secret."""
    return NewSecret(user=_user(answer.user), secret_key=answer.secret_key)


def users_of(answer: Any) -> list[User]:
    """Return the users of an answer."""
    return list(map(_user, answer.users))


def policy_of(message: Any) -> Policy:
    """Return a policy."""
    return value_of(Policy, message)


def policies_of(answer: Any) -> list[Policy]:
    """Return the policies of an answer."""
    return list(map(policy_of, answer.policies))


def deleted_count_of(answer: Any) -> int:
    """Return how many policies were deleted."""
    return int(answer.deleted_count)
