"""StagedCommits of the asyncio client, with a real writer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from files_below import files_below
from service_process import WriterProcess

from penstock import (
    AsyncClient,
    AsyncStagedCommit,
    FailedPrecondition,
    InvalidArgument,
    RecordBatch,
)

LARGE = 500_000


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    with WriterProcess(tmp_path_factory.mktemp("async") / "store") as process:
        with process.client() as client:
            client.create_topic("t", queues=1)
        yield process


@pytest_asyncio.fixture(name="aclient")
async def _aclient(writer: WriterProcess) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(writer=writer.address) as client:
        yield client


def records(
    staged_commit: AsyncStagedCommit, attempt: str, *numbers: int, size: int = 1000
) -> bytes:
    batch = RecordBatch("t")
    for number in numbers:
        key = staged_commit.unique_key(attempt, number)
        batch.add(bytes(size), queue_id=0, unique_key=key)
    return bytes(batch.records())


async def test_what_is_staged_is_stored_once(aclient: AsyncClient) -> None:
    staged_commit = aclient.staged_commit("app", 3)
    staged = await staged_commit.stage(
        "a", [records(staged_commit, "a", 0, 1), records(staged_commit, "a", 2)]
    )
    assert (staged.attempt, staged.record_count, staged.decided) == ("a", 3, False)
    (app,) = [each for each in await aclient.staged_commits() if each.app_id == "app"]
    assert [stage.attempt for each in app.open for stage in each.stages] == ["a"]

    first = await staged_commit.commit(["a"])
    again = await staged_commit.commit(["a"])

    assert (first.record_count, first.already, again.already) == (3, False, True)
    assert (await staged_commit.stage("b", [records(staged_commit, "b", 0)])).decided
    with pytest.raises(FailedPrecondition):
        await staged_commit.abort()


@pytest.mark.parametrize("good", [0, 1, 10])
async def test_a_refusal_before_the_last_batch_is_raised_as_it_is(
    aclient: AsyncClient, good: int
) -> None:
    """Also while flow control holds what is being sent."""
    staged_commit = aclient.staged_commit("refused", 0)

    def batches(attempt: str) -> Iterator[bytes]:
        for number in range(good):
            yield records(staged_commit, attempt, number, size=LARGE)
        yield records(staged_commit, "another", good, size=LARGE)
        for number in range(good + 1, good + 40):
            yield records(staged_commit, attempt, number, size=LARGE)

    for round_ in range(10):
        attempt = f"{good} {round_}"
        with pytest.raises(InvalidArgument):
            await staged_commit.stage(attempt, batches(attempt))
    applications = await aclient.staged_commits()
    assert not [app.open for app in applications if app.app_id == "refused" and app.open]


async def test_a_stage_that_is_cancelled_leaves_nothing(
    aclient: AsyncClient, writer: WriterProcess
) -> None:
    staged_commit = aclient.staged_commit("cancelled", 0)
    goes_on = True

    def endless() -> Iterator[bytes]:
        number = 0
        while goes_on:
            yield records(staged_commit, "a", number)
            number += 1
            time.sleep(0.01)

    def files() -> int:
        found = files_below(writer.store / "staged", ".stage")
        return sum("cancelled" in str(path) for path in found)

    async def becomes(count: int) -> None:
        until = time.monotonic() + 60
        while files() != count and time.monotonic() < until:
            await asyncio.sleep(0.02)
        assert files() == count

    staging = asyncio.create_task(staged_commit.stage("a", endless()))
    await becomes(1)
    staging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await staging
    await becomes(0)
    goes_on = False


async def test_a_slow_source_does_not_stop_the_loop(aclient: AsyncClient) -> None:
    staged_commit = aclient.staged_commit("slow", 0)
    answered = threading.Event()

    def slow() -> Iterator[bytes]:
        if answered.wait(60):
            yield records(staged_commit, "a", 0)

    staging = asyncio.create_task(staged_commit.stage("a", slow()))
    await asyncio.sleep(0)
    await aclient.writer_status()
    answered.set()
    assert (await staging).record_count == 1
