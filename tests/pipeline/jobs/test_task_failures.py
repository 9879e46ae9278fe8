"""What is reported of a task that failed, out of all that Spark prints of it."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from pipeline.errors import TaskFailed
from pipeline.jobs.work import task_failures_raised

SAID = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):
  File "work.py", line 1, in run
    write()
OSError: [Errno 28] No space left on device: '/new/0.parquet'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def test_the_tasks_own_words_are_left_of_an_error_of_sparks() -> None:
    with pytest.raises(TaskFailed) as told, task_failures_raised():
        raise PythonException(SAID)
    assert str(told.value) == (
        "a task failed: OSError: [Errno 28] No space left on device: '/new/0.parquet'"
    )


@pytest.mark.parametrize("error", [KeyError("a bug"), KeyboardInterrupt()])
def test_what_the_driver_raises_itself_goes_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as told, task_failures_raised():
        raise error
    assert told.value is error
