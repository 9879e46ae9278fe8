"""What a servicer is made of.

A servicer is an object with one coroutine a method of its service descriptor, in snake case. It
gets parsed requests and returns messages, or takes and returns bytes where it is marked ``raw``. A
method that takes a stream is given its context alone, which gives it each request. A method that
streams its answers writes them to its context, and may return the last one's bytes. The context is
the last argument. What it raises becomes a status (``services.rpc.status``), so it never handles
errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from services.rpc.served_call import CallEnded as CallEnded
from services.rpc.served_call import Metadata as Metadata
from services.rpc.served_call import ServedCall
from storage.errors import StoreClosed

Context = ServedCall
_F = TypeVar("_F", bound=Callable[..., Any])
_RAW: Final = "_takes_raw_bytes"
_IS_BRIEF: Final = "_is_brief"


def raw(method: _F) -> _F:
    """Mark a servicer's method as taking the request's bytes instead of a message."""
    setattr(method, _RAW, True)
    return method


def is_raw(method: Callable[..., Any]) -> bool:
    """Return whether a method takes the request's bytes."""
    return getattr(method, _RAW, False)


def brief(method: _F) -> _F:
    """Mark a method that takes one request and ends soon, and whose work counts also when its caller has gone.

    Its call costs less: that the caller has gone is noticed some 20 to 40 ms later.
    """
    setattr(method, _IS_BRIEF, True)
    return method


def is_brief(method: Callable[..., Any]) -> bool:
    """Return whether a method is marked ``brief``."""
    return getattr(method, _IS_BRIEF, False)


def method_of(servicer: Any, name: str) -> Callable[..., Any]:
    """Return what serves a method of a contract, by the method's name there."""
    method: Callable[..., Any] = getattr(servicer, snake_case(name))
    return method


def snake_case(name: str) -> str:
    """Return the name of a contract's method as Python writes it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Draining(StoreClosed):
    """The service is stopping; another one, or this one after its restart, will take the call."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; try again")
