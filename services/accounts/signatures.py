"""RocketMQ's signatures, as servers check them: ``penstock.credentials`` makes them.

The signature covers the date alone. Clients of RocketMQ send local time labelled as UTC, so the date's age
says nothing and is not checked (``penstock/credentials.py`` says what follows).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.credentials import ALGORITHM, AUTHORIZATION_KEY, DATE_KEY, signature
from storage.accounts.rules import Rules, secret_id

_VALUE: Final = re.compile(
    rf"{ALGORITHM}\s+Credential=([^,/\s]*)[^,]*,\s*SignedHeaders=[^,]*,\s*Signature=([0-9a-fA-F]*)"
)
_LENGTH_MAX: Final = 1_024


class Signed(NamedTuple):
    """What a caller sent: nothing is checked yet."""

    access_key: str
    date: str
    signature: str

    def is_by(self, secret: str) -> bool:
        """Return whether a secret made the signature."""
        return hmac.compare_digest(signature(secret, self.date), self.signature.lower())


def signing_secret_id(rules: Rules, signed: Signed) -> str:
    """Return what names the secret that made a signature, "" if none of the user's did."""
    user = rules.users.get(signed.access_key)
    secret = next(filter(signed.is_by, user.secrets if user else ()), None)
    return secret_id(secret) if secret else ""


def carried(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str, str]:
    """Return the authorization that metadata carries, "" without one, and its date."""
    date = value = ""
    for key, each in metadata:
        if key == AUTHORIZATION_KEY:
            value = each if isinstance(each, str) else ""
        elif key == DATE_KEY:
            date = each if isinstance(each, str) else ""
    return value, date


def signed_by(value: str, date: str) -> Signed | None:
    """Return what an authorization says, None if it names nobody.

    RocketMQ's Python client without credentials sends an empty access key: it is nobody.
    Raises ValueError for one that is not such a signature.
    """
    if not value:
        return None
    found = _VALUE.fullmatch(value) if len(value) + len(date) <= _LENGTH_MAX else None
    if found is None:
        raise ValueError(f"the authorization is not {ALGORITHM}")
    access_key, given = found.groups()
    return Signed(access_key, date, given) if access_key else None
