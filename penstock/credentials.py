"""Who a client is: RocketMQ's signature, an HMAC of the date keyed by a secret, as metadata of each call.

Source: ``MQv2-HMAC-SHA1`` of RocketMQ 5's clients. It covers the date alone, and no server limits the date's
age: who reads it once may use it for ever. Send it over TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from dataclasses import dataclass, field
from typing import Any, Final

DATE_KEY: Final = "x-mq-date-time"
AUTHORIZATION_KEY: Final = "authorization"
ALGORITHM: Final = "MQv2-HMAC-SHA1"
ACCESS_KEY_VARIABLE: Final = "PENSTOCK_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "PENSTOCK_SECRET_KEY"  # noqa: S105  the variable's name
_DATE_FORMAT: Final = "%Y%m%dT%H%M%SZ"

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key, which is the user's name, and a secret key."""

    access_key: str
    secret_key: str = field(repr=False)

    def metadata(self) -> Metadata:
        """Return what a call carries to be known as this user's."""
        date = time.strftime(_DATE_FORMAT, time.gmtime())
        value = (
            f"{ALGORITHM} Credential={self.access_key}, SignedHeaders={DATE_KEY},"
            f" Signature={signature(self.secret_key, date)}"
        )
        return (DATE_KEY, date), (AUTHORIZATION_KEY, value)


def given_credentials(access_key: str = "", secret_key: str = "") -> Credentials | None:
    """Return what is given, or else what ``PENSTOCK_ACCESS_KEY`` and ``PENSTOCK_SECRET_KEY`` say; None
    without.

    Raises ValueError for one of the two without the other.
    """
    if not access_key and not secret_key:
        access_key = os.environ.get(ACCESS_KEY_VARIABLE, "")  # noqa: TID251  of a user's program
        secret_key = os.environ.get(SECRET_KEY_VARIABLE, "")  # noqa: TID251  likewise
        if not access_key and not secret_key:
            return None
    if not access_key or not secret_key:
        raise ValueError("an access key and its secret key are given together or not at all")
    return Credentials(access_key, secret_key)


def signed(stub: Any, credentials: Credentials | None) -> Any:
    """Return grpc's callable of a method as it is called with credentials."""
    return stub if credentials is None else _SignedStub(stub, credentials.metadata())


class _SignedStub:
    """grpc's callable of a method, with the caller's credentials in each call."""

    def __init__(self, stub: Any, metadata: Metadata) -> None:
        self._stub = stub
        self._metadata = metadata

    def __call__(self, request: Any, **options: Any) -> Any:
        return self._stub(request, metadata=self._metadata, **options)

    def future(self, request: Any, **options: Any) -> Any:
        return self._stub.future(request, metadata=self._metadata, **options)


def signature(secret_key: str, date: str) -> str:
    """Return the signature of a date, in lower-case hexadecimal."""
    return hmac.new(secret_key.encode(), date.encode(), hashlib.sha1).hexdigest()
