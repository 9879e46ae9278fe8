"""Programs that are fetched and built for a run, and what a Java program of RocketMQ is started with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# RocketMQ reaches into these packages of the JDK.
OPENED: Final = tuple(
    word
    for package in ("java.nio", "sun.nio.ch", "java.lang", "jdk.internal.ref", "jdk.internal.misc")
    for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
)


def run(*command: object, directory: Path | None = None, **environment: str) -> None:
    """Run a step of an installation. Raises RuntimeError with the end of its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=directory,
        env=os.environ | environment,  # noqa: TID251
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def fetch_jars(pom: Path, target: Path, *, maven: str = "mvn") -> None:
    """Put the jars that a POM asks for into a directory."""
    run(
        maven, "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime",
        f"-DoutputDirectory={target}",
    )  # fmt: skip


def compile_java(
    sources: Iterable[Path], libraries: Path, target: Path, *, javac: str = "javac"
) -> None:
    """Compile sources against a directory of jars."""
    target.mkdir(parents=True, exist_ok=True)
    run(javac, "-nowarn", "-d", target, "-cp", f"{libraries}/*", *sources)
