"""An operation of the client: written once, a method of both clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from inspect import Parameter, iscoroutinefunction, signature
from types import MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from penstock.calls.call import Call, Plan

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
_MADE: Final = re.compile(r"(?:Call|Plan)\[(.*)\]")


class _Runs(Protocol):
    """A client of threads."""

    def run(self, call: Call[R] | Plan[R], /) -> R: ...


class _RunsAsync(Protocol):
    """A client of an event loop."""

    async def run(self, call: Call[R] | Plan[R], /) -> R: ...


class operation(Generic[P, T]):  # noqa: N801  a decorator
    """A method of both clients: it returns the call, or the plan of several, that the client then runs.

    ``Client`` returns the value. ``AsyncClient`` returns a coroutine, which makes the call when it is awaited.
    """

    def __init__(self, make: Callable[Concatenate[Any, P], Call[T] | Plan[T]]) -> None:
        def method(client: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
            return client.run(make(client, *arguments, **named))

        async def coroutine(client: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
            return await client.run(make(client, *arguments, **named))

        self._forms = {False: _described(method, make), True: _described(coroutine, make)}

    @overload
    def __get__(self, client: None, owner: type[Any]) -> Callable[..., Any]: ...
    @overload
    def __get__(
        self, client: _RunsAsync, owner: type[Any]
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: _Runs, owner: type[Any]) -> Callable[P, T]: ...
    def __get__(self, client: Any, owner: type[Any]) -> Any:
        form = self._forms[iscoroutinefunction(getattr(owner, "run", None))]
        return form if client is None else MethodType(form, client)


def operation_of(make: Callable[P, Call[T]]) -> operation[P, T]:
    """Return the operation of a function that makes a call, and that others use too."""

    def with_client(_client: Any, *arguments: P.args, **named: P.kwargs) -> Call[T]:
        return make(*arguments, **named)

    method: Any = update_wrapper(with_client, make)
    made = signature(make)
    client = Parameter("self", Parameter.POSITIONAL_ONLY)
    method.__signature__ = made.replace(parameters=[client, *made.parameters.values()])
    return operation(method)


def _described(form: Any, make: Callable[..., Any]) -> Any:
    """Give a method the name, the text and the signature of what makes its call."""
    described: Any = update_wrapper(form, make)
    made = signature(make)
    value = _MADE.fullmatch(str(made.return_annotation))
    described.__signature__ = made.replace(return_annotation=value[1] if value else Any)
    return described
