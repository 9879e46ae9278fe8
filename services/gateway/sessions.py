"""Clients: who calls, by the metadata, and who is there, with when each was last heard of."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.accounts.principal import PRINCIPAL
from services.gateway.messages.statuses import CallRefused
from services.gateway.v2 import definition_pb2 as v2
from services.rpc.peers import ip_of_peer
from services.rpc.servicer import Context

CLIENT_ID_BYTES_MAX: Final = 255
TOPICS_MAX: Final = 64  # remembered of a client
TOPICS_BYTES_MAX: Final = 4 << 10  # all together
CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
_DEADLINE_MARGIN_SECONDS: Final = 0.3


class Caller(NamedTuple):
    """One client; an id that it does not send is empty."""

    client_id: str
    language: str
    user: str  # empty where accounts are off, and of a heartbeat that need not be a user's

    def is_same(self, other: Caller) -> bool:
        """Whether another call is of the same client."""
        return (self.client_id, self.user) == (other.client_id, other.user)

    def needs_id(self) -> str:
        """Return the id. Raises CallRefused with CLIENT_ID_REQUIRED."""
        if not self.client_id.strip():
            raise CallRefused(v2.CLIENT_ID_REQUIRED, f"the metadata has no {CLIENT_ID}")
        return self.client_id


def caller_of(context: Context) -> Caller:
    """Return who makes a call. Raises CallRefused for an id that is too long."""
    client_id = language = ""
    for key, value in context.invocation_metadata() or ():
        if key == CLIENT_ID and isinstance(value, str):
            client_id = value
        elif key == LANGUAGE and isinstance(value, str):
            language = value
    if len(client_id) > CLIENT_ID_BYTES_MAX:
        raise CallRefused(
            v2.BAD_REQUEST, f"the client id has more than {CLIENT_ID_BYTES_MAX} characters"
        )
    principal = PRINCIPAL.get()
    return Caller(client_id, language[:32], "" if principal is None else principal.name)


def seconds_left(context: Context, most: float) -> float:
    """Return how long a call may take until its answer would come too late."""
    remaining = context.time_remaining()
    return most if remaining is None else min(most, remaining - _DEADLINE_MARGIN_SECONDS)


@dataclass(slots=True)
class ClientSession:
    """One client; what it did not say is empty."""

    user: str  # whose it is, empty where accounts are off
    client_type: v2.ClientType = v2.CLIENT_TYPE_UNSPECIFIED
    group: str = ""
    topics: tuple[str, ...] = ()
    language: str = ""
    version: str = ""
    peer: str = ""
    renews: bool = False  # it took leases that last as long as it lives
    heard_at: float = 0.0


class Sessions:
    """Sessions by client id, bounded; the one silent for longest goes first.

    After a restart of the gateway a client's next heartbeat, telemetry command or push receive makes its
    session again. A heartbeat of which nobody knows the user makes none.
    """

    def __init__(self, *, most: int, timeout_seconds: float, gone: Callable[[str], None]) -> None:
        """Call ``gone`` with the owner of leases of each session that ends."""
        self._most = most
        self._timeout_seconds = timeout_seconds
        self._gone = gone
        self._by_id: OrderedDict[str, ClientSession] = OrderedDict()
        self._process_id = secrets.token_hex(4)
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[str, ClientSession]]:
        """Return all sessions, those silent for longest first."""
        return iter(list(self._by_id.items()))

    def owner_of(self, client_id: str) -> str:
        """Return by what name a client owns its leases: what another process of this service handed out
        may not have reached it, so it is not renewed and runs out.
        """
        return f"{client_id}@{self._process_id}"

    def heard(self, client_id: str, user: str) -> ClientSession:
        """Return the session of a client that calls. Raises CallRefused if it is another user's."""
        session = self._of_user(client_id, user)
        if session is None:
            session = self._by_id[client_id] = ClientSession(user)
            while len(self._by_id) > self._most:
                self._end(next(iter(self._by_id)))
        self._touch(client_id, session)
        return session

    def heard_from(self, client_id: str, peer: str) -> None:
        """Note that a client is there which does not say whose it is: one that is known, at the same address."""
        session = self._by_id.get(client_id)
        if session is None or not session.peer:
            return
        if ip_of_peer(session.peer) == ip_of_peer(peer):
            self._touch(client_id, session)

    def end(self, client_id: str, user: str) -> None:
        """End the session of a client that says it goes. Raises CallRefused if it is another user's."""
        if self._of_user(client_id, user) is not None:
            self._end(client_id)

    def expire(self) -> None:
        """End the sessions of clients that were silent for too long."""
        oldest = self._loop.time() - self._timeout_seconds
        while self._by_id:
            client_id, session = next(iter(self._by_id.items()))
            if session.heard_at > oldest:
                return
            self._end(client_id)

    def renewing(self) -> list[str]:
        """Return the owners of leases to be renewed."""
        return [
            self.owner_of(client_id) for client_id, session in self._by_id.items() if session.renews
        ]

    def _of_user(self, client_id: str, user: str) -> ClientSession | None:
        session = self._by_id.get(client_id)
        if session is not None and session.user != user:
            raise CallRefused(v2.FORBIDDEN, "the client id is in use by another user")
        return session

    def _touch(self, client_id: str, session: ClientSession) -> None:
        self._by_id.move_to_end(client_id)
        session.heard_at = self._loop.time()

    def _end(self, client_id: str) -> None:
        if self._by_id.pop(client_id).renews:
            self._gone(self.owner_of(client_id))
