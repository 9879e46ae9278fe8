"""Users, policies, and which policy decides.

The model is RocketMQ 5's ACL 2.0. A policy names a user, a resource, actions and source addresses, and allows
or denies. Of the policies that match, those of the user come before the default ones, and the most exact
resource wins; on a tie a denial wins (a broker sorts it last). Where none matches, the action is denied. A
super user may do everything.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from storage.accounts.limits import NOT_GIVEN, Limits
from storage.errors import InvalidMessage

TOPIC: Final = "Topic"
GROUP: Final = "Group"
CLUSTER: Final = "Cluster"
KINDS: Final = (TOPIC, GROUP, CLUSTER)
EVERYTHING: Final = "*"
USER_NAME_LENGTH_MAX: Final = 64
POLICIES_OF_USER_MAX: Final = 1_000
SECRETS_MAX: Final = 2  # while one takes the other's place
_HASHED: Final = "sha256:"  # no secret has a colon
_GROUP_TOPICS: Final = ("%RETRY%", "%DLQ%")  # topics that belong to a group

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Host = ipaddress.IPv4Address | ipaddress.IPv6Address


class Action(StrEnum):
    """What a call does to a resource."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class UserKind(StrEnum):
    """What a user may do: what policies allow, everything, or what services do for others."""

    NORMAL = "normal"
    SUPER = "super"
    SERVICE = "service"  # the store's own services, and a gateway elsewhere


class Resource(NamedTuple):
    """What a call names."""

    kind: str
    name: str

    @classmethod
    def topic(cls, name: str) -> Resource:
        """Return a topic, or the group that a retry topic or a topic of dead letters belongs to."""
        for prefix in _GROUP_TOPICS:
            if name.startswith(prefix):
                return cls(GROUP, name.removeprefix(prefix))
        return cls(TOPIC, name)

    @classmethod
    def group(cls, name: str) -> Resource:
        """Return a consumer group."""
        return cls(GROUP, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


THE_CLUSTER: Final = Resource(CLUSTER, EVERYTHING)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Resources that a policy is about: ``Topic:orders``, ``Topic:orders*``, ``Topic:*``, ``*``."""

    kind: str  # "": of any kind
    name: str
    is_prefix: bool

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read a pattern. Raises InvalidMessage."""
        if text == EVERYTHING:
            return cls("", "", is_prefix=True)
        kind, colon, name = text.partition(":")
        if kind not in KINDS or not colon or not name or "*" in name[:-1]:
            raise InvalidMessage(
                "resource",
                f"{text!r} is not KIND:NAME, KIND:PREFIX* or *, where KIND is one of {', '.join(KINDS)}",
            )
        is_prefix = name.endswith("*")
        return cls(kind, name.removesuffix("*"), is_prefix)

    def matches(self, resource: Resource) -> bool:
        """Return whether the resource is one of them."""
        if self.kind not in ("", resource.kind):
            return False
        return resource.name.startswith(self.name) if self.is_prefix else resource.name == self.name

    @property
    def exactness(self) -> tuple[bool, bool, int]:
        """What patterns that match the same resource are ordered by."""
        return self.kind != "", not self.is_prefix, len(self.name)

    def __str__(self) -> str:
        star = EVERYTHING if self.is_prefix else ""
        return f"{self.kind}:{self.name}{star}" if self.kind else star


Decision = Literal["allow", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One rule for one user."""

    user: str
    pattern: Pattern
    actions: frozenset[Action]
    sources: tuple[Network, ...] = ()  # none: from anywhere
    decision: Decision = "allow"
    is_default: bool = False

    def applies(self, resource: Resource, action: Action, source: Host | None) -> bool:
        """Return whether it is about an action on a resource, from an address (None: not known)."""
        return action in self.actions and self.pattern.matches(resource) and self._is_from(source)

    def denies_some(self, kind: str, action: Action, source: Host | None) -> bool:
        """Return whether it denies an action on resources of a kind, from an address."""
        return (
            self.decision == "deny"
            and self.pattern.kind == kind
            and action in self.actions
            and self._is_from(source)
        )

    def _is_from(self, source: Host | None) -> bool:
        return not self.sources or any(
            source is not None and source in network for network in self.sources
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An account. Its access key is its name; each of its secrets signs."""

    name: str
    kind: UserKind
    is_enabled: bool = True
    secrets: tuple[str, ...] = field(default=(), repr=False)
    limits: Limits = NOT_GIVEN

    @property
    def secret_ids(self) -> tuple[str, ...]:
        """What names each secret, and does not sign."""
        return tuple(map(secret_id, self.secrets))

    @property
    def may_everything(self) -> bool:
        """Whether no policy is asked."""
        return self.kind is not UserKind.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All users and policies as they were at one moment; ``generation`` is drawn anew with each change."""

    generation: int
    users: Mapping[str, User]
    policies: Mapping[str, tuple[Policy, ...]]  # by user

    def allows(self, user: User, resource: Resource, action: Action, source: Host | None) -> bool:
        """Decide whether a user may do something.

        The name ``*`` is one that a request leaves open: a denial for some of its kind is one for it.
        """
        if user.may_everything:
            return True
        policies = self.policies.get(user.name, ())
        if resource.name == EVERYTHING and any(
            policy.denies_some(resource.kind, action, source) for policy in policies
        ):
            return False
        applying = [policy for policy in policies if policy.applies(resource, action, source)]
        own = [policy for policy in applying if not policy.is_default]
        return _most_exact_allows(own or applying)


NO_RULES: Final = Rules(generation=0, users={}, policies={})


def secret_id(secret: str) -> str:
    """Return the hash that names a secret; of such a hash itself."""
    if secret.startswith(_HASHED):
        return secret
    return _HASHED + hashlib.sha256(secret.encode()).hexdigest()


def without_secrets(rules: Rules) -> Rules:
    """Return the rules with hashes instead of secrets: nobody can sign by them."""
    users = {name: replace(user, secrets=user.secret_ids) for name, user in rules.users.items()}
    return replace(rules, users=users)


def checked_policy(
    *,
    user: str,
    resource: str,
    actions: Iterable[str],
    sources: Iterable[str] = (),
    decision: str = "allow",
    is_default: bool = False,
) -> Policy:
    """Return a policy of what a caller or a file names. Raises InvalidMessage."""
    if decision not in ("allow", "deny"):
        raise InvalidMessage("decision", f"is allow or deny, not {decision!r}")
    return Policy(
        user=user,
        pattern=Pattern.parse(resource),
        actions=frozenset(_actions(actions)),
        sources=tuple(map(_network, sources)),
        decision="deny" if decision == "deny" else "allow",
        is_default=is_default,
    )


def checked_user_name(name: str) -> str:
    """Return a user's name. Raises InvalidMessage."""
    allowed = all(
        character.isascii() and (character.isalnum() or character in "_-.@") for character in name
    )
    if not allowed or not 1 <= len(name) <= USER_NAME_LENGTH_MAX:
        raise InvalidMessage(
            "user", f"has 1 to {USER_NAME_LENGTH_MAX} letters, digits and _-.@, unlike {name!r}"
        )
    return name


def _actions(names: Iterable[str]) -> list[Action]:
    found = []
    for name in names:
        if name in ("All", "*"):
            found += list(Action)
        elif name in set(Action):
            found.append(Action(name))
        else:
            raise InvalidMessage("actions", f"are All or some of {', '.join(Action)}, not {name!r}")
    if not found:
        raise InvalidMessage("actions", "is empty; name at least one")
    return found


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidMessage("sources", f"{text!r} is not an address or a network") from None


def _most_exact_allows(applying: list[Policy]) -> bool:
    if not applying:
        return False
    exactness = max(policy.pattern.exactness for policy in applying)
    return all(
        policy.decision == "allow" for policy in applying if policy.pattern.exactness == exactness
    )
