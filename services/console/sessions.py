"""Who signed in: sessions in memory, each with the client that calls as its user."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import FormData

from penstock import AsyncClient
from services.console.answers import Answers
from services.console.rates import Rates
from storage.clock import Clock

COOKIE: Final = "penstock_console"
IDLE_S: Final = 1_800.0  # without a page that somebody asked for
LONGEST_S: Final = 43_200.0
SESSIONS_MAX: Final = 1_000
MakeClient = Callable[[str, str], AsyncClient]


class UserClient:
    """A client with one user's credentials, and what it was answered; shared by the user's sessions."""

    def __init__(self, name: str, client: AsyncClient, credentials: bytes, clock: Clock) -> None:
        self.name = name
        self.client = client
        self.credentials = credentials  # a digest of them
        self.answers = Answers(clock)
        self.rates = Rates()
        self.session_count = 0


@dataclass(slots=True)
class BrowserSession:
    """One browser; ``notices`` are shown on its next page."""

    id: str
    caller: UserClient
    began_s: float
    seen_s: float
    notices: list[str] = field(default_factory=list)


class BrowserSessions:
    """Sessions by their ids, which browsers hold as a cookie. Credentials are in memory alone."""

    def __init__(self, make_client: MakeClient, clock: Clock) -> None:
        self._make_client = make_client
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self._callers: dict[bytes, UserClient] = {}

    def new_id(self) -> str:
        """Return an id that nobody can guess."""
        return secrets.token_urlsafe(32)

    def form_token(self, session_id: str) -> str:
        """Return what the forms of a session carry; another site cannot know it."""
        return hmac.new(self._key, session_id.encode(), hashlib.sha256).hexdigest()

    def is_of(self, session_id: str, form: FormData) -> bool:
        """Whether a form is of a page of this session."""
        token = str(form.get("form_token", ""))
        return hmac.compare_digest(self.form_token(session_id).encode(), token.encode())

    async def find(self, session_id: str, *, touch: bool) -> BrowserSession | None:
        """Return a session that has not ended; ``touch``: somebody asked for a page."""
        await self._end_old()
        session = self._sessions.get(session_id)
        if session is not None and touch:
            session.seen_s = self._clock.monotonic()
            self._sessions.move_to_end(session_id)
        return session

    async def open(self, name: str, secret_key: str) -> BrowserSession:
        """Begin the session of a user who signed in, or of a browser where nobody does: then both are empty."""
        caller, now = self.caller(name, secret_key), self._clock.monotonic()
        session = BrowserSession(self.new_id(), caller, now, now)
        caller.session_count += 1
        self._sessions[session.id] = session
        while len(self._sessions) > SESSIONS_MAX:
            await self.end(next(iter(self._sessions.values())))
        return session

    def caller(self, name: str, secret_key: str) -> UserClient:
        """Return who calls with some credentials."""
        digest = hmac.new(self._key, f"{name}\0{secret_key}".encode(), hashlib.sha256).digest()
        if digest not in self._callers:
            client = self._make_client(name, secret_key)
            self._callers[digest] = UserClient(name, client, digest, self._clock)
        return self._callers[digest]

    async def end(self, session: BrowserSession) -> None:
        """End a session; with a user's last one its credentials are forgotten."""
        if self._sessions.pop(session.id, None) is None:
            return
        session.caller.session_count -= 1
        if not session.caller.session_count:
            del self._callers[session.caller.credentials]
            await session.caller.client.close()

    async def _end_old(self) -> None:
        now = self._clock.monotonic()
        ended = [
            session
            for session in self._sessions.values()
            if now - session.seen_s > IDLE_S or now - session.began_s > LONGEST_S
        ]
        for session in ended:
            await self.end(session)

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions.values()):
            await self.end(session)
