"""An operation of the client: written once, a method of both clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, signature
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from penstock.calls.call import Call, Plan
from penstock.forms import both

P = ParamSpec("P")
T = TypeVar("T")
_MADE: Final = re.compile(r"(?:Call|Plan)\[(.*)\]")


class operation(both[P, T]):  # noqa: N801  a decorator
    """A method of both clients: it returns the call, or the plan of several, that the client then runs.

    ``Client`` returns the value. ``AsyncClient`` returns a coroutine, which makes the call when it is awaited.
    """

    def __init__(self, make: Callable[Concatenate[Any, P], Call[T] | Plan[T]]) -> None:
        async def work(client: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
            return await client._send(make(client, *arguments, **named))

        described: Any = update_wrapper(work, make)
        made = signature(make)
        value = _MADE.fullmatch(str(made.return_annotation))
        described.__signature__ = made.replace(return_annotation=value[1] if value else Any)
        super().__init__(described)


def operation_of(make: Callable[P, Call[T]]) -> operation[P, T]:
    """Return the operation of a function that makes a call, and that others use too."""

    def with_client(_client: Any, *arguments: P.args, **named: P.kwargs) -> Call[T]:
        return make(*arguments, **named)

    method: Any = update_wrapper(with_client, make)
    made = signature(make)
    client = Parameter("self", Parameter.POSITIONAL_ONLY)
    method.__signature__ = made.replace(parameters=[client, *made.parameters.values()])
    return operation(method)
