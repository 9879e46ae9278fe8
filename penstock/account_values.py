"""Accounts, as frozen values (docs/security.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from storage.accounts.limits import Limits as Limits

UserKind: TypeAlias = Literal["normal", "super", "service"]


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
