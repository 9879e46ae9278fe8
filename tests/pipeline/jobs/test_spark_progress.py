"""Progress of jobs: what tasks count arrives, a query is followed by its stages, nothing is shown unasked."""

from __future__ import annotations

import io
from typing import Any

from pipeline.jobs import progress
from pipeline.jobs.progress import job_progress


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
