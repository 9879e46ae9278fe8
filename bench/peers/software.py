"""What the peers and their clients need: fetched from package registries at the first use, compiled, and kept.

It lies in ``$XDG_CACHE_HOME/penstock-bench``. A tool that is not installed raises ToolMissing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from zlib import crc32

from bench.peers.programs import compile_java, fetch_jars, run

CLIENTS: Final = Path(__file__).parent / "clients"
PYTHON_PACKAGES: Final = ("nats-py==2.16.0", "redis==8.1.0", "confluent-kafka==2.16.1")
NATS_SERVER: Final = "v2.15.2"


class ToolMissing(RuntimeError):
    """A program that a peer needs is not on this machine; it is not a failure of the peer."""


def cache() -> Path:
    """Return the directory that everything fetched and compiled is kept in."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"  # noqa: TID251
    return Path(home) / "penstock-bench"


def require(program: str, package: str) -> str:
    """Return the path of a program. Raises ToolMissing with the name of the package that has it."""
    found = shutil.which(program)
    if found is None:
        raise ToolMissing(f"{program} is not installed (Debian: apt-get install {package})")
    return found


def _made_from(name: str, sources: Iterable[Path]) -> Path:
    """Return the directory of what is made from these files: another one when they change."""
    checksum = 0
    for source in sources:
        checksum = crc32(source.read_bytes(), checksum)
    return cache() / f"{name}-{checksum:08x}"


def jars(pom: Path) -> Path:
    """Return a directory with the jars that a POM asks for, fetched by Maven."""
    target = _made_from(pom.stem, [pom])
    if not (target / ".done").exists():
        fetch_jars(pom, target, maven=require("mvn", "maven"))
        (target / ".done").touch()
    return target


def java_classes(peer: str, libraries: Path) -> Path:
    """Return the directory of a peer's compiled Java client."""
    sources = sorted(
        [*(CLIENTS / "java" / "common").iterdir(), *(CLIENTS / "java" / peer).glob("*.java")]
    )
    target = _made_from(f"{peer}-client", sources)
    if not (target / ".done").exists():
        compile_java(sources, libraries, target, javac=require("javac", "default-jdk-headless"))
        (target / ".done").touch()
    return target


def go_client() -> Path:
    """Return the compiled client of the peers that Go reaches: NATS, Redis and Penstock."""
    folder = CLIENTS / "go"
    target = _made_from("go-client", sorted(folder.iterdir())) / "peers"
    if not target.exists():
        run(require("go", "golang"), "build", "-o", target, ".", directory=folder)
    return target


def nats_server() -> Path:
    """Return nats-server, built from its Go module."""
    target = cache() / f"nats-{NATS_SERVER}" / "nats-server"
    if not target.exists():
        go = require("go", "golang")
        run(
            go,
            "install",
            f"github.com/nats-io/nats-server/v2@{NATS_SERVER}",
            GOBIN=str(target.parent),
        )
    return target


def python_with_clients() -> Path:
    """Return a Python interpreter that has the clients of the peers."""
    return python_with(*PYTHON_PACKAGES)


def python_with(*packages: str) -> Path:
    """Return a Python interpreter that has some packages, installed at the first use."""
    target = cache() / f"python-{crc32(' '.join(packages).encode()):08x}"
    if not (target / ".done").exists():
        run(sys.executable, "-m", "venv", "--clear", target)
        run(target / "bin" / "pip", "install", "-q", *packages)
        (target / ".done").touch()
    return target / "bin" / "python"
