"""The proxy that gRPC takes from the environment, for errors to name: it may be what does not answer."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple, TypeVar

from penstock.addresses import is_this_machine
from penstock.errors import DeadlineExceeded, PenstockError, Unavailable
from penstock.tls import TLS, advice

# As gRPC reads them: the first that is set counts, also where it is empty.
PROXY_VARIABLES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
_PROXY: Final = re.compile(r"http://(?:[^@/]*@)?([^/?#]+)")  # without its password
ErrorT = TypeVar("ErrorT", bound=PenstockError)


def way_to(address: str) -> str:
    """Return the words of an error about the proxy that an address may be reached through, "" for none."""
    environment = os.environ  # noqa: TID251  gRPC reads it, not we
    name = next((each for each in PROXY_VARIABLES if each in environment), "")
    proxy = _PROXY.match(environment.get(name, ""))
    if proxy is None or is_this_machine(address):
        return ""
    return f" through the proxy of {name}=http://{proxy[1]}, unless no_proxy names its host"


class Way(NamedTuple):
    """How a service is called: through which proxy, in words, and with which TLS."""

    proxy: str = ""
    tls: TLS | None = None

    def advice(self, problem: str) -> str:
        """Return what to do about a connection that failed, in words that follow the problem's, or ""."""
        found = advice(problem, self.tls)
        return f"; {found}" if found else ""


def with_way(failure: ErrorT, way: Way) -> ErrorT:
    """Return the error, whose message has the way where no service has answered."""
    if isinstance(failure, Unavailable | DeadlineExceeded) and not failure.reason:
        called = f", called{way.proxy}" if way.proxy else ""
        failure.message = f"{failure.message}{called}{way.advice(failure.message)}"
        failure.args = (failure.message,)
    return failure
