"""A coroutine that begins before it is waited for."""

from __future__ import annotations

import asyncio

import pytest

from services.writer.eager_coroutine import EagerCoroutine


class Operation:
    """Something of gRPC's shape: begins in the first step, ends when its future does."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        self.steps.append("begun")
        try:
            result = await self.future
        except BaseException as error:
            self.steps.append(type(error).__name__)
            raise
        self.steps.append("ended")
        return result


def run(test):
    return asyncio.run(test())


def test_the_first_step_is_made_at_once_and_the_rest_by_who_waits():
    async def main():
        operation = Operation()
        eager = EagerCoroutine(operation.run())
        assert operation.steps == ["begun"]
        asyncio.get_running_loop().call_soon(operation.future.set_result, 7)
        assert await eager == 7
        assert operation.steps == ["begun", "ended"]

    run(main)


def test_what_has_ended_is_had_without_a_turn_of_the_loop():
    async def main():
        operation = Operation()
        eager = EagerCoroutine(operation.run())
        operation.future.set_result(7)
        turns = []
        asyncio.get_running_loop().call_soon(turns.append, 1)
        assert await eager == 7
        assert turns == []

    run(main)


@pytest.mark.parametrize("late", [False, True])
def test_an_error_is_raised_where_it_is_waited_for(late):
    async def main():
        operation = Operation()
        eager = EagerCoroutine(operation.run())
        if late:
            asyncio.get_running_loop().call_soon(operation.future.set_exception, OSError("x"))
        else:
            operation.future.set_exception(OSError("x"))
        with pytest.raises(OSError, match="x"):
            await eager
        assert operation.steps == ["begun", "OSError"]

    run(main)


def test_an_error_of_the_first_step_is_raised_at_once():
    async def fails():
        raise OSError("at once")

    with pytest.raises(OSError, match="at once"):
        EagerCoroutine(fails())


def test_cancelling_who_waits_cancels_the_operation():
    async def main():
        operation = Operation()
        eager = EagerCoroutine(operation.run())

        async def wait():
            await eager

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert operation.future.cancelled()
        assert operation.steps == ["begun", "CancelledError"]
        eager.cancel()

    run(main)
