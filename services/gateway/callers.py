"""Who calls, by the call's metadata."""

from __future__ import annotations

from typing import Final, NamedTuple

from services.accounts.principal import PRINCIPAL
from services.gateway.messages.statuses import CallRefused
from services.gateway.sessions import CLIENT_ID_BYTES_MAX
from services.gateway.v2 import definition_pb2 as v2
from services.rpc.servicer import Context

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
