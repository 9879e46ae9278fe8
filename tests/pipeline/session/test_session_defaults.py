"""What a session is set to, by where Spark runs."""

from __future__ import annotations

import pytest

from pipeline.session.session import defaults_of


@pytest.mark.parametrize(
    ("master", "on_loopback"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://master.example:7077", False),
        ("yarn", False),
    ],
)
def test_only_executors_of_this_machine_get_the_loopback_address(
    master: str, on_loopback: bool
) -> None:
    """Those on another machine would call themselves instead of the driver."""
    settings = defaults_of(master)

    assert ("spark.driver.host" in settings) is on_loopback
    assert ("spark.driver.bindAddress" in settings) is on_loopback
    assert settings["spark.python.daemon.module"] == "pipeline.session.daemon"
