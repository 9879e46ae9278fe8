"""deploy/observability: boards and alert rules ask for metrics that a running store has, with labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from used_store import MetricsPage

from services.local_services import LocalServices

OBSERVABILITY = Path(__file__).resolve().parents[3] / "deploy" / "observability"
RULES = OBSERVABILITY / "alerts.yml"
BOARDS = sorted((OBSERVABILITY / "grafana" / "boards").glob("*.json"))
OF_PROMETHEUS = {"up": {"job", "instance"}}
TARGET_LABELS = {"job", "instance", "le"}
KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
CLAUSE = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"([a-zA-Z_]\w*)\s*\{([^}]*)\}")


def rule_queries() -> list[str]:
    text = RULES.read_text()
    found = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
    assert len(found) == text.count("- alert: ") > 10
    return found


def panels(board: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(board.read_text())["panels"]
    return found


def board_queries(board: Path) -> list[str]:
    return [target["expr"] for panel in panels(board) for target in panel.get("targets", [])]  # type: ignore[attr-defined]


def metrics_in(query: str) -> set[str]:
    """Return the metrics that a query names: what is left of it without strings, labels, times, functions and words."""
    query = re.sub(r'"[^"]*"', "", query)
    query = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", query)
    query = CLAUSE.sub("", query)
    names = set(re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", query))
    return names - KEYWORDS


def labels_in(query: str) -> dict[str, set[str]]:
    """Return by metric the labels that are asked of it: in braces, and in the clauses of a query of one metric."""
    asked = {
        name: set(re.findall(r"(\w+)\s*[=!]", re.sub(r'"[^"]*"', "", labels)))
        for name, labels in SELECTOR.findall(query)
    }
    metrics = metrics_in(query)
    if len(metrics) == 1:
        clauses = {label.strip() for clause in CLAUSE.findall(query) for label in clause.split(",")}
        asked.setdefault(*metrics, set()).update(clauses - {""})
    return asked


def known(page: MetricsPage) -> dict[str, set[str]]:
    """Return the labels of every metric by name; of a family without samples all labels are asked of are let through."""
    found: dict[str, set[str]] = dict(OF_PROMETHEUS)
    for family in page.families.values():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
            family.type, [""]
        )
        for suffix in suffixes:
            found[family.name + suffix] = set()
        for sample in family.samples:
            found[sample.name] |= {*sample.labels, *TARGET_LABELS}
    return found


def unknown_in(query: str, page: MetricsPage) -> list[str]:
    there = known(page)
    wrong = sorted(metrics_in(query) - there.keys())
    for name, labels in labels_in(query).items():
        if there.get(name):
            wrong += [f"{name}{{{label}}}" for label in sorted(labels - there[name])]
    return wrong


def test_rules_and_boards_ask_for_metrics_and_labels_that_there_are(
    metrics_page: MetricsPage,
) -> None:
    assert BOARDS
    queries = rule_queries() + [query for board in BOARDS for query in board_queries(board)]
    assert {query: wrong for query in queries if (wrong := unknown_in(query, metrics_page))} == {}
    for board in BOARDS:
        for metric, label in re.findall(r"label_values\((\w+), (\w+)\)", board.read_text()):
            assert label in known(metrics_page)[metric]


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("penstock_writable == 0 or penstock_readable == 0", ["penstock_readable"]),
        ("sum(rate(penstock_sync_seconds_buckets[5m])) by (le)", ["penstock_sync_seconds_buckets"]),
        ('rocketmq_messages_in_total{topics="orders"}', ["rocketmq_messages_in_total{topics}"]),
        ("max by (places) (penstock_log_behind_bytes)", ["penstock_log_behind_bytes{places}"]),
        ("rocketmq_messages_in > 5", ["rocketmq_messages_in"]),
    ],
)
def test_one_that_there_is_not_is_named(
    metrics_page: MetricsPage, query: str, wrong: list[str]
) -> None:
    assert unknown_in(query, metrics_page) == wrong


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_board_is_laid_out(board: Path) -> None:
    """Each panel has a number of its own and a place of its own, and its queries the source that is provisioned."""
    whole = json.loads(board.read_text())
    assert whole["uid"] and whole["title"] and whole["schemaVersion"] >= 39
    source = re.search(
        r"uid: (\w+)",
        (OBSERVABILITY / "grafana/provisioning/datasources/prometheus.yml").read_text(),
    )
    assert source is not None
    numbers, taken = [], set()
    for panel in panels(board):
        numbers.append(panel["id"])
        at: dict[str, int] = panel["gridPos"]  # type: ignore[assignment]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {source.group(1)}  # type: ignore[attr-defined]
    assert len(set(numbers)) == len(numbers)


def test_promtool_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    configs = [
        ("config", OBSERVABILITY / name) for name in ("prometheus.yml", "prometheus.tls.yml")
    ]
    for what, file in (("rules", RULES), *configs):
        syntax = ["--syntax-only"] if what == "config" else []  # certificates are elsewhere
        checked = subprocess.run(
            [promtool, "check", what, *syntax, file], capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture
def prometheus(used_store: LocalServices, tmp_path: Path) -> Iterator[str]:
    """A real Prometheus that has scraped the running store twice, with the rules."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    config = (OBSERVABILITY / "prometheus.yml").read_text()
    config = re.sub(r"targets: .*", f'targets: ["{used_store.addresses["metrics"]}"]', config)
    config = config.replace("15s", "1s").replace("alerts.yml", str(RULES))
    (tmp_path / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            program, f"--config.file={tmp_path}/prometheus.yml", f"--web.listen-address={address}",
            f"--storage.tsdb.path={tmp_path}/data",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while not asked(address, "count_over_time(penstock_writable[1m]) >= 3"):
            assert time.monotonic() < until
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def asked(address: str, query: str) -> list[object]:
    """Return what Prometheus answers, nothing while it starts."""
    parameters = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(
            f"http://{address}/api/v1/query?{parameters}", timeout=10
        ) as answer:
            data: list[object] = json.load(answer)["data"]["result"]
            return data
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    except OSError:
        return []


def test_a_real_prometheus_answers_every_query_of_boards_and_rules(
    prometheus: str, metrics_page: MetricsPage
) -> None:
    there = known(metrics_page)
    for query in [query for board in BOARDS for query in board_queries(board)]:
        answer = asked(
            prometheus, query.replace("$__rate_interval", "1m").replace("$cluster", ".*")
        )
        if all(there[name] for name in metrics_in(query)):  # it has samples
            assert answer, query
    for query in rule_queries():
        asked(prometheus, query)  # it fails for one that is wrong
    with urllib.request.urlopen(f"http://{prometheus}/api/v1/rules", timeout=10) as answer:
        rules = json.load(answer)["data"]["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    assert firing <= {"PenstockDeadLetters"}  # of a store to which nothing has happened but that
