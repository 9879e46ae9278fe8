"""One user at one address, and what it may do now."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from services.rpc.status import PermissionDenied, Unauthenticated
from storage.accounts.rules import Action, Host, Resource, Rules, User

_DECISIONS_MAX: Final = 4_096  # that are remembered of a caller
PRINCIPAL: ContextVar[Principal | None] = ContextVar("caller", default=None)
"""Who made the call that runs; None where accounts are off, or where a service does work of its own."""


class Principal:
    """Who calls. What it may do is decided by the rules as ``user`` saw them last."""

    def __init__(
        self, rules: Callable[[], Rules], name: str, source: Host | None, secret_id: str | None
    ) -> None:
        """``secret_id`` names the secret that signed; None for who came with a certificate."""
        self._rules_now = rules
        self._name = name
        self._source = source
        self._secret_id = secret_id
        self._rules: Rules | None = None
        self._user: User | None = None
        self._decisions: dict[tuple[Action, Resource], bool] = {}

    @property
    def name(self) -> str:
        """The user's name."""
        return self._name

    @property
    def address(self) -> str:
        """Where it calls from, "" if that is not known."""
        return str(self._source or "")

    def user(self) -> User:
        """Return the user as it is now. Raises Unauthenticated if it may not call any more."""
        rules = self._rules_now()
        if rules is not self._rules:
            user = rules.users.get(self._name)
            signed = self._secret_id
            if user is not None and signed is not None and signed not in user.secret_ids:
                user = None
            self._user = user if user is not None and user.is_enabled else None
            self._rules = rules
            self._decisions.clear()
        if self._user is None:
            raise Unauthenticated
        return self._user

    def allows(self, action: Action, resource: Resource) -> bool:
        """Return whether the caller may do something. Raises Unauthenticated as ``user`` does."""
        user = self._user or self.user()
        if user.may_everything:
            return True
        place = action, resource
        decision = self._decisions.get(place)
        if decision is None:
            assert self._rules is not None
            decision = self._rules.allows(user, resource, action, self._source)
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[place] = decision
        return decision

    def check(self, resource: Resource, *actions: Action) -> None:
        """Raise PermissionDenied unless the caller may do one of them; Unauthenticated as ``user`` does."""
        for action in actions:
            if self.allows(action, resource):
                return
        raise PermissionDenied(self._name, f"{actions[0]} on {resource}")


def check(resource: Resource, *actions: Action) -> None:
    """Do the same for the caller of the call that runs, by the rules as they are now.

    Where accounts are off everything is allowed.
    """
    caller = PRINCIPAL.get()
    if caller is not None:
        caller.user()
        caller.check(resource, *actions)
