"""``penstock staged`` shows what is committed and what is open."""

from __future__ import annotations

from run_cli import Penstock, json_lines

from penstock import Client, RecordBatch
from services.local_services import LocalServices


def test_committed_and_staged_versions_are_listed(
    run: Penstock, services: LocalServices, topic: str
) -> None:
    """The last commit of an application and each open version are a line."""
    with Client(**services.addresses) as client:
        for version in (3, 4):
            staged_commit = client.staged_commit(f"app of {topic}", version)
            batch = RecordBatch(topic)
            for number in range(2):
                batch.add(b"x", unique_key=staged_commit.unique_key("a", number))
            staged_commit.stage("a", [batch.records()])
            if version == 3:
                assert staged_commit.commit(["a"]).record_count == 2

    lines = [
        line
        for line in json_lines(run("staged", "--json"))
        if line["application"] == f"app of {topic}"
    ]

    assert [(line["version"], line["state"], line["records"]) for line in lines] == [
        (3, "committed", 2),
        (4, "staged", 2),
    ]
    assert "staged" in run("staged").stdout
