"""Looks for known vulnerabilities of what the lock files pin: ``make audit``.

Ends with 1 where there are some. What nobody could be asked about is said loudly, and is no failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

_OUT_OF_REACH: Final = ("ConnectionError", "ProxyError", "Timeout", "blocking this service")


def verdict(printed: str, problems: str) -> tuple[int, list[str]]:
    """Return the exit code and what to say, of what pip-audit printed as JSON and to stderr."""
    try:
        packages: list[dict[str, Any]] = json.loads(printed)["dependencies"]
    except ValueError:
        last = (problems.strip().splitlines() or ["it printed nothing"])[-1]
        if any(sign in problems for sign in _OUT_OF_REACH):
            return 0, [f"AUDIT SKIPPED: the service of vulnerabilities is out of reach: {last}"]
        return 1, [f"pip-audit failed: {last}"]
    found = [
        f"{package['name']} {package['version']}: {each['id']}, repaired in"
        f" {', '.join(each['fix_versions']) or 'no version'}"
        for package in packages
        for each in package.get("vulns", ())
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    said = [
        f"{len(packages) - len(skipped)} packages audited, {len(found)} vulnerabilities",
        *found,
    ]
    if skipped:
        said.append(f"AUDIT SKIPPED: the service does not know {', '.join(skipped)}")
    return int(bool(found)), said


def main(program: str, locks: Sequence[str]) -> int:
    """Ask about all packages of the lock files."""
    files = [argument for lock in locks for argument in ("--requirement", lock)]
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([program, *options, *files], capture_output=True, text=True, check=False)
    code, said = verdict(done.stdout, done.stderr)
    print("\n".join(said))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
