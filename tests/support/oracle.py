"""A real RocketMQ 5.3.3 broker's view of a store, through tests/conformance/oracle."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ORACLE = Path(__file__).resolve().parents[1] / "conformance" / "oracle"
REQUIRED = "PENSTOCK_ORACLE_REQUIRED"
TIMEOUT_S = 240
SMALL_FILES = {  # settings of a broker for stores of a few hundred records
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
    "timerWheelEnable": False,
}


@cache
def oracle_problem() -> str:
    """What keeps the oracle from running here, empty if nothing does."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        return f"the broker's own check DID NOT RUN: {', '.join(missing)} not found"
    try:
        built = subprocess.run(
            ["sh", ORACLE / "run", "--help"], capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return "the broker's own check DID NOT RUN: the oracle took too long to build"
    if not any(_home().glob("classes-*")):
        return f"the broker's own check DID NOT RUN: no build of the oracle: {built.stderr[-300:]}"
    return ""


def oracle_required() -> bool:
    """Whether a missing oracle is a failure (set in CI that must have it) and not a skip."""
    return os.getenv(REQUIRED, "") not in ("", "0")


def _home() -> Path:
    return Path(os.getenv("ORACLE_HOME") or Path.home() / ".cache" / "penstock-oracle")


@dataclass(frozen=True, slots=True)
class Opened:
    """What ``run open`` said."""

    exit_code: int
    report: dict[str, Any]
    stderr: str

    @property
    def good(self) -> bool:
        return self.exit_code == 0 and self.report.get("ok") is True and not self.report["faults"]


def _config_file(
    directory: Path, settings: dict[str, Any] | None, broker: dict[str, Any] | None = None
) -> list[str | Path]:
    if settings is None:
        return []
    path = directory.parent / f"{directory.name}.broker.json"
    path.write_text(json.dumps({"store": settings, "broker": broker or {}}))
    return ["--config", path]


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", ORACLE / "run", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S
    )


def oracle_generate(spec: dict[str, Any], directory: Path) -> None:
    """Have a real broker, driven by RocketMQ's own client, make a store as a spec says."""
    path = directory.parent / f"{directory.name}.spec.json"
    path.write_text(json.dumps(spec))
    done = _run("generate", path, directory)
    assert (directory / "commitlog").is_dir(), done.stderr[-1_000:]


def oracle_open(
    directory: Path,
    *,
    settings: dict[str, Any] | None = None,
    broker: dict[str, Any] | None = None,
    keep: Path | None = None,
    run_ms: int = 0,
) -> Opened:
    """Have a whole broker open a copy, append ten messages and read them; ``keep`` keeps the copy.

    It goes on for ``run_ms`` after that.
    """
    kept: list[str | Path] = ["--keep", keep] if keep else []
    if run_ms:
        kept += ["--run", str(run_ms)]
    done = _run("open", directory, *_config_file(directory, settings, broker), *kept)
    text = done.stdout[done.stdout.find("{") :]
    report = json.loads(text) if text else {"faults": ["no report"]}
    return Opened(done.returncode, report, done.stderr)


def oracle_dump(directory: Path, *, settings: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Everything that a broker sees in a copy of the directory, one dict a line."""
    out = directory.parent / f"{directory.name}.oracle.jsonl"
    done = _run("dump", directory, *_config_file(directory, settings), "--out", out)
    assert out.exists(), done.stderr
    with out.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def oracle_ask(
    directory: Path, questions: list[dict[str, Any]], *, settings: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """A broker's answers to questions about a copy of the directory."""
    asked = directory.parent / f"{directory.name}.questions.json"
    asked.write_text(json.dumps(questions))
    out = directory.parent / f"{directory.name}.oracle-answers.json"
    done = _run("ask", directory, asked, *_config_file(directory, settings), "--out", out)
    assert out.exists(), done.stderr
    return json.loads(out.read_text())
