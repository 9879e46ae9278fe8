"""deploy/observability: boards and alert rules ask for metrics that a running store has, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

from used_store import MetricsPage

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
