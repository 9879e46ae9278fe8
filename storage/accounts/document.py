"""The file ``config/accounts.json``: users with their secrets, and policies.

A JSON document with a checksum (``storage.tables.checked_json``), readable by its owner alone::

    {"formatVersion": 1, "generation": 2610557181408372014,
     "users": {"billing": {"kind": "normal", "enabled": true, "secrets": ["..."],
                           "limits": {"requests_per_second": 500}}},
     "policies": [{"user": "billing", "resource": "Topic:orders*", "actions": ["Sub"], "sources": [],
                   "decision": "allow", "default": false}]}

The secrets are as they were made: RocketMQ's signature is an HMAC keyed by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from storage.accounts.limits import checked_limits
from storage.accounts.rules import Policy, Rules, User, UserKind, checked_policy, checked_user_name
from storage.errors import BrokenAccounts, InvalidMessage
from storage.tables.checked_json import decode_checked, encode_checked

ACCOUNTS_FILE: Final = "accounts.json"
ACCOUNTS_MODE: Final = 0o600
_VERSION: Final = 1
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, InvalidMessage)


def encode_rules(rules: Rules) -> bytes:
    """Return the file's bytes."""
    return encode_checked(
        {
            "formatVersion": _VERSION,
            "generation": rules.generation,
            "users": {user.name: _user_fields(user) for user in rules.users.values()},
            "policies": [
                policy_fields(policy) for policies in rules.policies.values() for policy in policies
            ],
        },
        indent=1,
    )


def decode_rules(data: bytes) -> Rules:
    """Read the file's bytes. Raises BrokenAccounts."""
    try:
        document = decode_checked(data)
        if document["formatVersion"] != _VERSION:
            raise ValueError(f"its version is {document['formatVersion']}, not {_VERSION}")
        users = {name: _user(name, fields) for name, fields in document["users"].items()}
        policies: dict[str, list[Policy]] = {}
        for fields in document["policies"]:
            policy = _policy(fields)
            if policy.user not in users:
                raise ValueError(f"a policy is for {policy.user!r}, who is no user")
            policies.setdefault(policy.user, []).append(policy)
        return Rules(
            generation=int(document["generation"]),
            users=users,
            policies={name: tuple(each) for name, each in policies.items()},
        )
    except _MALFORMED as error:
        raise BrokenAccounts(
            f"config/{ACCOUNTS_FILE} is not usable: {error}. Restore it from a backup; without it all users and"
            " policies have to be made again"
        ) from error


def policy_fields(policy: Policy) -> dict[str, Any]:
    """Return a policy as the file and commands show it."""
    return {
        "user": policy.user,
        "resource": str(policy.pattern),
        "actions": sorted(policy.actions),
        "sources": list(map(str, policy.sources)),
        "decision": policy.decision,
        "default": policy.is_default,
    }


def _user_fields(user: User) -> dict[str, Any]:
    return {
        "kind": user.kind,
        "enabled": user.is_enabled,
        "secrets": list(user.secrets),
        "limits": user.limits.given,
    }


def _user(name: str, fields: Mapping[str, Any]) -> User:
    secrets = fields["secrets"]
    if not isinstance(secrets, list) or not all(isinstance(each, str) and each for each in secrets):
        raise ValueError(f"the secrets of {name!r} are not texts")
    return User(
        name=checked_user_name(name),
        kind=UserKind(fields["kind"]),
        is_enabled=bool(fields["enabled"]),
        secrets=tuple(secrets),
        limits=checked_limits(fields["limits"]),
    )


def _policy(fields: Mapping[str, Any]) -> Policy:
    return checked_policy(
        user=str(fields["user"]),
        resource=str(fields["resource"]),
        actions=fields["actions"],
        sources=fields["sources"],
        decision=fields["decision"],
        is_default=bool(fields["default"]),
    )
