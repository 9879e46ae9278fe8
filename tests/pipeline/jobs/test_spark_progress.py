"""Progress of jobs: what tasks count arrives, a query is followed by its stages, nothing is shown unasked."""

from __future__ import annotations

import io
from typing import Any

from pipeline.jobs import progress
from pipeline.jobs.progress import job_progress, size_text


def test_what_tasks_count_arrives_and_never_passes_the_total(spark: Any) -> None:
    with job_progress(spark, "audit", total_bytes=60) as shown:
        counter = shown.counter
        spark.sparkContext.parallelize(range(4), 4).foreach(lambda _: counter.add(10))
        assert shown.done_bytes == 40
        shown.advance(100)
        assert shown.done_bytes == 60


def test_a_query_counts_whole_when_it_is_done(spark: Any) -> None:
    with job_progress(spark, "export", total_bytes=100) as shown:
        with shown.query(spark, 70):
            spark.range(1000).selectExpr("sum(id)").collect()
            assert 0 < shown.done_bytes <= 70
        assert shown.done_bytes == 70
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_log_gets_lines_and_a_quiet_job_none(spark: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.01)
    loud, silent = io.StringIO(), io.StringIO()
    for stream, show in ((loud, True), (silent, False)):
        with job_progress(spark, "rebuild", total_bytes=2 << 30, show=show, stream=stream) as shown:
            shown.advance(1 << 30)
            while show and "50 %" not in loud.getvalue():
                pass

    assert loud.getvalue().splitlines()[-1].startswith("rebuild: 1.0 GiB of 2.0 GiB (50 %), ")
    assert silent.getvalue() == ""


def test_a_terminal_gets_a_bar(spark: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    with job_progress(spark, "audit", total_bytes=1000, show=True, stream=screen) as shown:
        shown.advance(1000)

    assert "audit" in screen.getvalue()


def test_sizes_are_written_as_people_do() -> None:
    assert [size_text(size) for size in (7, 1536, 3 << 20, 5 << 29)] == [
        "7 B", "1.5 KiB", "3.0 MiB", "2.5 GiB",
    ]  # fmt: skip
