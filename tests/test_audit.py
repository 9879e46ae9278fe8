"""What ``make audit`` makes of pip-audit's output: vulnerabilities fail it, what was not looked at is said."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "deploy"))
from audit import verdict


def printed(*packages):
    return json.dumps({"dependencies": packages})


CLEAN = {"name": "click", "version": "8.5.1", "vulns": []}
KNOWN = {
    "name": "idna",
    "version": "3.6",
    "vulns": [{"id": "PYSEC-2024-60", "fix_versions": ["3.7"]}, {"id": "X-1", "fix_versions": []}],
}
UNKNOWN = {"name": "own", "skip_reason": "Dependency not found on PyPI"}


def test_vulnerabilities_fail_and_are_named():
    code, said = verdict(printed(CLEAN, KNOWN), "")
    assert code == 1
    assert said[0] == "2 packages audited, 2 vulnerabilities"
    assert any("PYSEC-2024-60" in line and "3.7" in line for line in said)


def test_a_package_that_the_service_does_not_know_is_no_package_audited():
    code, said = verdict(printed(CLEAN, UNKNOWN), "")
    assert (code, said[0]) == (0, "1 packages audited, 0 vulnerabilities")
    assert said[1].startswith("AUDIT SKIPPED") and "own" in said[1]


@pytest.mark.parametrize(
    ("problems", "code"),
    [
        ("...\nrequests.exceptions.ProxyError: no route to pypi.org", 0),
        ("ERROR:pip_audit._cli:Tip: your network may be blocking this service.", 0),
        ("ERROR:pip_audit._cli:invalid requirement", 1),
        ("", 1),
    ],
)
def test_a_service_out_of_reach_is_skipped_loudly_and_another_failure_is_one(problems, code):
    got, (said,) = verdict("", problems)
    assert got == code
    assert said.startswith("pip-audit failed" if code else "AUDIT SKIPPED")
