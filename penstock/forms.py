"""The two forms of the client, for threads and for an event loop, of one source.

What waits is a coroutine. For an event loop it is awaited. For threads `finished` runs it to its end: there
all that it awaits blocks the thread and never suspends the coroutine. What blocks or suspends is written
twice, with the same methods: `WakeUp`, `Background`, `Handlers`, `Home`, and how `ServiceChannels` wait. Each
has its twin whose name begins with Async.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from inspect import iscoroutinefunction, signature
from time import monotonic
from types import MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")
X = TypeVar("X")
Y = TypeVar("Y")
_TURN_S: Final = 0.005


class OfThreads:
    """A class of the client for threads."""


class OfLoop:
    """A class of the client for an event loop.

    Threads bring what it hands out and take what it is given, so a task that uses it may find no reason to
    wait. It gives the loop a turn when `_turn_at` has come: other tasks, time-outs and Ctrl-C get in.
    """

    _turn_at = 0.0

    async def _give_turn(self) -> None:
        await asyncio.sleep(0)
        self._turn_at = monotonic() + _TURN_S


def check_kind(owner: object, work: Callable[..., Any]) -> None:
    """Raise TypeError if threads are given a coroutine function, whose return would be taken for work done."""
    if isinstance(owner, OfThreads) and iscoroutinefunction(work):
        raise TypeError(f"{work!r} is a coroutine function, which an AsyncClient takes")


def finished(
    work: Callable[P, Coroutine[Any, Any, T]], /, *arguments: P.args, **named: P.kwargs
) -> T:
    """Run a coroutine that blocks and never suspends; return what it returns.

    No bytecode at which an interrupt (Ctrl-C) may raise lies between the coroutine's end and the return.
    """
    try:
        work(*arguments, **named).send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise RuntimeError(f"{work!r} waits for an event loop")


class TwoForms(Generic[P, X, Y]):
    """A method of classes of both forms, which each have theirs."""

    def __init__(self, of_threads: Callable[..., X], of_loop: Callable[..., Y]) -> None:
        self._forms: dict[bool, Any] = {True: of_threads, False: of_loop}

    def __set_name__(self, _owner: type[Any], name: str) -> None:
        self._forms[True].__name__ = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: OfThreads, owner: type[Any]) -> Callable[P, X]: ...
    @overload
    def __get__(self, instance: OfLoop, owner: type[Any]) -> Callable[P, Y]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        form = self._forms[issubclass(owner, OfThreads)]
        return form if instance is None else MethodType(form, instance)


class both(TwoForms[P, T, Coroutine[Any, Any, T]]):  # noqa: N801  a decorator
    """A coroutine as a method of both forms: of a class of threads it returns the value."""

    def __init__(self, work: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> T:
            return finished(work, self, *arguments, **named)

        super().__init__(update_wrapper(method, work), work)


def makes(
    of_threads: Callable[..., X], of_loop: Callable[..., Y]
) -> Callable[[Callable[Concatenate[Any, P], tuple[Any, ...]]], TwoForms[P, X, Y]]:
    """Decorate a method that returns what an object of the client's form is given after the client."""
    return lambda given: TwoForms(_maker(of_threads, given), _maker(of_loop, given))


def _maker(kind: Any, given: Any) -> Any:
    def method(self: Any, /, *arguments: Any, **named: Any) -> Any:
        return kind(self, *given(self, *arguments, **named))

    made: Any = update_wrapper(method, given)
    made.__signature__ = signature(given).replace(return_annotation=kind.__name__)
    return made


class Closing(OfThreads):
    """Leaving the ``with`` block closes it."""

    close: both[[], None]

    def _leaving(self, kind: object) -> None:
        """Take in the end of the block, by an exception of a kind or None."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        self._leaving(kind)
        self.close()


class AsyncClosing(OfLoop):
    """Leaving the ``async with`` block closes it."""

    close: both[[], None]

    def _leaving(self, kind: object) -> None:
        """Take in the end of the block, by an exception of a kind or None."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object = None, *_: object) -> None:
        self._leaving(kind)
        await self.close()

    async def aclose(self) -> None:
        """Close it, as an asynchronous generator is closed."""
        await self.close()


class Iterating(Iterator[T], OfThreads):
    """``for`` and ``next`` over what `_next_item` returns."""

    @abstractmethod
    async def _next_item(self) -> T:
        """Return the next item. Raises StopAsyncIteration at the end."""

    def __next__(self) -> T:
        try:
            self._next_item().send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        except StopAsyncIteration:
            raise StopIteration from None
        raise RuntimeError("it waits for an event loop")


class AsyncIterating(AsyncIterator[T], OfLoop):
    """``async for`` and ``anext`` over what `_next_item` returns."""

    @abstractmethod
    async def _next_item(self) -> T:
        """Return the next item. Raises StopAsyncIteration at the end."""

    def __anext__(self) -> Coroutine[Any, Any, T]:
        return self._next_item() if monotonic() < self._turn_at else self._item_after_turn()

    async def _item_after_turn(self) -> T:
        await self._give_turn()
        return await self._next_item()
