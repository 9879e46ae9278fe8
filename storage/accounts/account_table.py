"""Reading and changing the accounts of a store.

Only the writer, or who holds a stopped store, changes them. Every other process reads them with
``AccountFile``, which sees a change with its next look.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.accounts.document import ACCOUNTS_FILE, ACCOUNTS_MODE, decode_rules, encode_rules
from storage.accounts.limits import NOT_GIVEN, Limits
from storage.accounts.rules import (
    NO_RULES,
    POLICIES_OF_USER_MAX,
    SECRETS_MAX,
    Policy,
    Rules,
    User,
    UserKind,
    checked_user_name,
)
from storage.errors import (
    BrokenAccounts,
    InvalidMessage,
    PolicyExists,
    PolicyNotFound,
    StoreFull,
    UserExists,
    UserNotFound,
)

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem, ReadFileSystem
    from storage.files.protocol import FileStatus

SERVICES_USER: Final = "penstock.services"  # as whom the services of a store call each other
_SECRET_BYTES: Final = 30
_GENERATION_BITS: Final = 62
_log = logging.getLogger(__name__)


class AccountFile:
    """The accounts as a process sees them: read again whenever the file has changed."""

    def __init__(self, filesystem: ReadFileSystem, config_directory: Path) -> None:
        """Read the file; without one there are no users. Raises BrokenAccounts, OSError."""
        self._filesystem = filesystem
        self._path = config_directory / ACCOUNTS_FILE
        self._read: tuple[FileStatus | None, Rules] = None, NO_RULES
        self._problem = ""
        self._look()

    def rules(self) -> Rules:
        """Return the accounts as they are now; a file that cannot be used leaves those before in force."""
        try:
            self._look()
            self._problem = ""
        except (BrokenAccounts, OSError) as error:
            if str(error) != self._problem:
                _log.error("the accounts before stay in force: %s", error)
            self._problem = str(error)
        return self._read[1]

    def _look(self) -> None:
        before, rules = self._read
        try:
            status = self._filesystem.status(self._path)
        except FileNotFoundError:
            if before is not None:
                self._read = None, rules
                raise
            return
        if status != before:
            data = self._filesystem.read_bytes(self._path)
            self._read = status, rules  # a broken file is named once
            self._read = status, decode_rules(data)


class AccountTable:
    """Changes accounts. Safe to call from several threads; each change is durable on return."""

    def __init__(self, filesystem: FileSystem, config_directory: Path) -> None:
        """Read the file; without one there are no users. Raises BrokenAccounts, OSError."""
        self._filesystem = filesystem
        self._path = config_directory / ACCOUNTS_FILE
        self._lock = threading.Lock()
        self._rules = NO_RULES
        if filesystem.exists(self._path):
            self._rules = decode_rules(filesystem.read_bytes(self._path))

    @property
    def rules(self) -> Rules:
        """The accounts after the last change."""
        return self._rules

    def renew_services_user(self) -> None:
        """Give the user as whom the store's services call each other a new secret; the one before stays good.

        A full disk leaves it as it is. Raises StoreFull where there is none yet.
        """
        with self._lock:
            user = self._rules.users.get(SERVICES_USER)
            before = user.secrets[-1:] if user else ()
            renewed = User(
                name=SERVICES_USER, kind=UserKind.SERVICE, secrets=(*before, _new_secret())
            )
            try:
                self._save(users={**self._rules.users, SERVICES_USER: renewed})
            except StoreFull:
                if user is None:
                    raise

    def restore_user(self, name: str, kind: UserKind) -> User:
        """Create a user, or give one that is there a new secret alone, that kind, and the right to call."""
        with self._lock:
            if name == SERVICES_USER:
                raise UserExists(name)
            known = self._rules.users.get(checked_user_name(name))
            if known is None:
                known = User(name=name, kind=kind)
            user = replace(known, kind=kind, is_enabled=True, secrets=(_new_secret(),))
            self._save(users={**self._rules.users, name: user})
            return user

    def create_user(self, name: str, kind: UserKind) -> User:
        """Add a user with a new secret; return it. Raises UserExists, InvalidMessage."""
        user = User(name=checked_user_name(name), kind=kind, secrets=(_new_secret(),))
        with self._lock:
            if name in self._rules.users:
                raise UserExists(name)
            self._save(users={**self._rules.users, name: user})
        return user

    def update_user(
        self,
        name: str,
        *,
        kind: UserKind | None = None,
        is_enabled: bool | None = None,
        adds_secret: bool = False,
        drops_old_secrets: bool = False,
        limits: Limits = NOT_GIVEN,
        resets_limits: bool = False,
    ) -> User:
        """Change a user; return it. Raises UserNotFound, InvalidMessage.

        With ``adds_secret`` a new secret, the last one, is good beside the one before; with
        ``drops_old_secrets`` only the last one is. Of ``limits`` those that are given are set, with
        ``resets_limits`` no others.
        """
        with self._lock:
            user = self._user(name)
            if drops_old_secrets:
                user = replace(user, secrets=user.secrets[-1:])
            if adds_secret:
                if len(user.secrets) >= SECRETS_MAX:
                    raise InvalidMessage(
                        "user",
                        f"{name!r} has {SECRETS_MAX} secrets already; drop the old one first",
                    )
                user = replace(user, secrets=(*user.secrets, _new_secret()))
            if kind is not None:
                user = replace(user, kind=kind)
            limits = limits.over(NOT_GIVEN if resets_limits else user.limits)
            user = replace(user, limits=limits)
            if is_enabled is not None:
                user = replace(user, is_enabled=is_enabled)
            users = {**self._rules.users, name: user}
            self._check_super_user_stays(users)
            self._save(users=users)
            return user

    def delete_user(self, name: str) -> None:
        """Remove a user and its policies. Raises UserNotFound."""
        with self._lock:
            self._user(name)
            users = {key: each for key, each in self._rules.users.items() if key != name}
            self._check_super_user_stays(users)
            self._save(
                users=users,
                policies={key: each for key, each in self._rules.policies.items() if key != name},
            )

    def _check_super_user_stays(self, users: Mapping[str, User]) -> None:
        """Raise InvalidMessage if a change takes the last super user away: nobody could undo it."""
        if _has_super_user(self._rules.users) and not _has_super_user(users):
            raise InvalidMessage(
                "user", "is the last super user who may call: make another one first"
            )

    def put_policy(self, policy: Policy, *, exists: bool | None = None) -> None:
        """Add a policy, in the place of one for the same resource with the same decision.

        ``exists`` says whether there has to be such a one; None for either. Raises PolicyExists, PolicyNotFound,
        UserNotFound, InvalidMessage.
        """
        with self._lock:
            self._user(policy.user)
            had = self._rules.policies.get(policy.user, ())
            others = [each for each in had if _place(each) != _place(policy)]
            if exists is False and len(others) < len(had):
                raise PolicyExists(policy.user, str(policy.pattern), policy.decision)
            if exists and len(others) == len(had):
                raise PolicyNotFound(policy.user, str(policy.pattern), policy.decision)
            if len(others) >= POLICIES_OF_USER_MAX:
                raise InvalidMessage(
                    "user",
                    f"{policy.user!r} has {POLICIES_OF_USER_MAX} policies, the most there may be",
                )
            self._save(policies={**self._rules.policies, policy.user: (*others, policy)})

    def delete_policies(self, user: str, resource: str) -> int:
        """Remove a user's policies for a resource, "" for all; return how many. Raises UserNotFound,
        PolicyNotFound.
        """
        with self._lock:
            self._user(user)
            had = self._rules.policies.get(user, ())
            kept = tuple(each for each in had if resource and str(each.pattern) != resource)
            if len(kept) == len(had):
                raise PolicyNotFound(user, resource)
            self._save(policies={**self._rules.policies, user: kept})
            return len(had) - len(kept)

    def _user(self, name: str) -> User:
        user = self._rules.users.get(name)
        if user is None or name == SERVICES_USER:
            raise UserNotFound(name)
        return user

    def _save(
        self,
        *,
        users: dict[str, User] | None = None,
        policies: dict[str, tuple[Policy, ...]] | None = None,
    ) -> None:
        rules = Rules(
            generation=secrets.randbits(_GENERATION_BITS) or 1,  # a file put back repeats none
            users=self._rules.users if users is None else users,
            policies=self._rules.policies if policies is None else policies,
        )
        self._filesystem.make_directory(self._path.parent)
        self._filesystem.write_atomically(
            self._path, encode_rules(rules), backup=False, mode=ACCOUNTS_MODE
        )
        self._rules = rules


def _has_super_user(users: Mapping[str, User]) -> bool:
    return any(user.kind is UserKind.SUPER and user.is_enabled for user in users.values())


def listed_users(rules: Rules) -> Iterable[User]:
    """Return the users that people made, by name."""
    return [user for name, user in sorted(rules.users.items()) if name != SERVICES_USER]


def _place(policy: Policy) -> tuple[object, ...]:
    return policy.pattern, policy.decision, policy.is_default


def _new_secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)
