"""One user at one address, and what it may do now."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple

from services.rpc.status import PermissionDenied, Unauthenticated
from storage.accounts.rules import Action, Host, Resource, Rules, User
from storage.format.names import LONG_TOPIC_SIZE_MAX

_DECISIONS_MAX: Final = 4_096  # that are remembered of a caller
PRINCIPAL: ContextVar[Principal | None] = ContextVar("caller", default=None)
"""Who made the call that runs; None where accounts are off, or where a service does work of its own."""


class _Seen(NamedTuple):
    """The rules as a caller was looked up in them; swapped whole, for threads ask as well."""

    rules: Rules | None
    user: User | None  # None: may not call
    decisions: dict[tuple[Action, Resource], bool]
    sent: set[str]  # topics that it may send to


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
        self._seen = _Seen(None, None, {}, set())

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
        seen = self._seen
        if rules is not seen.rules:
            user = rules.users.get(self._name)
            signed = self._secret_id
            if user is not None and signed is not None and signed not in user.secret_ids:
                user = None
            seen = _Seen(rules, user if user is not None and user.is_enabled else None, {}, set())
            self._seen = seen
        if seen.user is None:
            raise Unauthenticated
        return seen.user

    def allows(self, action: Action, resource: Resource) -> bool:
        """Return whether the caller may do something. Raises Unauthenticated as ``user`` does."""
        rules, user, decisions, _ = self._seen
        if rules is None or user is None:
            self.user()
            return self.allows(action, resource)
        if user.may_everything:
            return True
        if len(resource.name) > LONG_TOPIC_SIZE_MAX:  # no name is as long
            return False
        place = action, resource
        decision = decisions.get(place)
        if decision is None:
            decision = rules.allows(user, resource, action, self._source)
            if len(decisions) >= _DECISIONS_MAX:
                decisions.clear()
            decisions[place] = decision
        return decision

    def check(self, resource: Resource, *actions: Action) -> None:
        """Raise PermissionDenied unless the caller may do one of them; Unauthenticated as ``user`` does."""
        for action in actions:
            if self.allows(action, resource):
                return
        raise PermissionDenied(self._name, f"{' or '.join(actions)} on {resource}")

    def check_sends(self, topics: set[str]) -> None:
        """Raise as ``check`` unless the caller may send to all topics, by the rules as they are now."""
        if self.user().may_everything:
            return
        sent = self._seen.sent
        if not topics <= sent:
            for topic in topics:
                self.check(Resource.topic(topic), Action.PUB)
            if len(sent) + len(topics) <= _DECISIONS_MAX:
                sent |= topics


def check(resource: Resource, *actions: Action) -> None:
    """Do the same for the caller of the call that runs, by the rules as they are now.

    Where accounts are off everything is allowed.
    """
    caller = PRINCIPAL.get()
    if caller is not None:
        caller.user()
        caller.check(resource, *actions)
