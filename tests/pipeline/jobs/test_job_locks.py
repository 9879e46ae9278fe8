"""A job that cannot lock its directory says why; only a lock that is held is another job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pipeline.errors import InvalidOption, PipelineError
from pipeline.jobs.export.manifest import held_export
from pipeline.jobs.new_directory import new_directory

LOCKS = [(new_directory, PipelineError), (held_export, InvalidOption)]


@pytest.mark.parametrize(("hold", "refusal"), LOCKS)
def test_a_directory_that_another_job_holds_is_refused(
    tmp_path: Path,
    hold: Callable[[Path], AbstractContextManager[object]],
    refusal: type[Exception],
) -> None:
    with (
        hold(tmp_path / "new"),
        pytest.raises(refusal, match="another job"),
        hold(tmp_path / "new"),
    ):
        pass
