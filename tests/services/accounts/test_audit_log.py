"""What the audit log has, at whatever level the service logs, and how much of it."""

import io
import json
import logging
import sys

import pytest
import structlog

from services import logs
from services.accounts.audit import LINES_PER_S, AuditLog


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines(monkeypatch):
    """Returns the lines that were logged since it was asked last, at level error."""
    written = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", written)
        logs.configure(service="test", level="error", log_format="json")

    def told():
        new = written.getvalue()
        written.seek(0)
        written.truncate()
        return [json.loads(line) for line in new.splitlines()]

    yield told
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def deny(audit, topic, user="ann", method="Produce"):
    audit.denied(user=user, address="10.0.0.7", method=method, problem=f"Pub on Topic:{topic}")


def test_it_has_changes_and_denials_at_every_level_of_the_log(lines):
    audit = AuditLog()
    audit.changed("create user", by="root", user="ann")
    deny(audit, "orders")
    assert [line["event"] for line in lines()] == ["account changed", "denied"]


def test_new_names_in_each_call_are_alike(lines):
    clock = Clock()
    audit = AuditLog(clock)
    for number in range(50):
        deny(audit, number)
    assert len(lines()) == 1
    clock.now += 11
    deny(audit, "again")
    assert [line["repeats"] for line in lines()] == [49]


def test_lines_of_a_second_are_bounded_and_none_is_lost_from_the_count(lines):
    clock = Clock()
    audit = AuditLog(clock)
    for number in range(5_000):
        deny(audit, "orders", method=f"method-{number}")
    written = lines()
    assert len(written) == LINES_PER_S
    clock.now += 11
    deny(audit, "orders", user="bob")
    (line,) = lines()
    assert line["others"] == 5_000 - LINES_PER_S


def test_what_is_forgotten_stays_in_the_count(lines):
    clock = Clock()
    audit = AuditLog(clock)
    for second in range(60):
        clock.now += 1
        for number in range(LINES_PER_S):
            deny(audit, "orders", method=f"method-{second}-{number}")
            deny(audit, "orders", method=f"method-{second}-{number}")
    told = sum(1 + line["repeats"] + line["others"] for line in lines())
    kept = sum(count for _, count in audit._denied.values())
    assert told + kept == 60 * LINES_PER_S * 2
