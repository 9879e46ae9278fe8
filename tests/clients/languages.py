"""The official clients, pinned: how each is installed into ``.clients/``, how its driver is started, what it can do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.peers.programs import compile_java, fetch_jars, run

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".clients"
JAVA_OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@dataclass(frozen=True)
class Language:
    """One client: its version, the tools that its installation needs, and what it, or its driver, lacks."""

    name: str
    version: str
    tools: tuple[str, ...]
    install: Callable[[], None]
    command: Callable[[], list[str]]
    lacks: frozenset[str] = frozenset()
    tls: bool = False  # asks for TLS by default
    environment: Mapping[str, str] | None = None

    def available(self) -> bool:
        return all(shutil.which(tool) for tool in self.tools)


def once(mark: Path, *sources: Path) -> bool:
    """Whether a step has to run: its mark is missing or older than what it is made from."""
    return not mark.exists() or any(
        source.stat().st_mtime > mark.stat().st_mtime for source in sources
    )


def install_python() -> None:
    home, wanted = CACHE / "python", HERE / "python" / "requirements.txt"
    if once(home / ".done", wanted):
        run(sys.executable, "-m", "venv", home)
        run(home / "bin" / "pip", "install", "-q", "--no-deps", "-r", wanted)
        (home / ".done").touch()


def install_node() -> None:
    home = CACHE / "node"
    wanted = [HERE / "node" / name for name in ("package.json", "package-lock.json")]
    if once(home / ".done", *wanted):
        home.mkdir(parents=True, exist_ok=True)
        for path in wanted:
            shutil.copy(path, home)
        run("npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", directory=home)
        (home / ".done").touch()


def java_classes(folder: Path, home: Path) -> None:
    """Fetch the jars of a folder's pom.xml and compile its sources."""
    if once(home / "lib" / ".done", folder / "pom.xml"):
        shutil.rmtree(home / "lib", ignore_errors=True)
        fetch_jars(folder / "pom.xml", home / "lib")
        (home / "lib" / ".done").touch()
    sources = sorted(folder.glob("*.java"))
    if once(home / "classes" / ".done", *sources):
        compile_java(sources, home / "lib", home / "classes")
        (home / "classes" / ".done").touch()


def install_go() -> None:
    binary = CACHE / "go" / "driver"
    if once(binary, *(HERE / "go").iterdir()):
        binary.parent.mkdir(parents=True, exist_ok=True)
        run("go", "build", "-o", binary, ".", directory=HERE / "go")


def install_rust() -> None:
    mark = CACHE / "rust" / ".done"
    if once(mark, HERE / "rust" / "Cargo.toml", HERE / "rust" / "src" / "main.rs"):
        run(
            "cargo",
            "build",
            "-q",
            "--locked",
            directory=HERE / "rust",
            CARGO_TARGET_DIR=str(CACHE / "rust"),
        )
        mark.touch()


def java_command() -> list[str]:
    home = CACHE / "java"
    return ["java", *JAVA_OPTIONS, "-cp", f"{home / 'classes'}:{home / 'lib'}/*", "Driver"]


LANGUAGES = {
    language.name: language
    for language in (
        Language(
            "python", "5.1.2", (), install_python,
            lambda: [str(CACHE / "python" / "bin" / "python"), str(HERE / "python" / "driver.py")],
            lacks=frozenset({"together"}),
        ),
        Language(
            "node", "1.0.8", ("node", "npm"), install_node,
            lambda: ["node", str(HERE / "node" / "driver.js")],
            lacks=frozenset({"together", "readme"}), environment={"NODE_PATH": str(CACHE / "node" / "node_modules")},
        ),
        Language(
            "java", "5.2.0", ("java", "javac", "mvn"), lambda: java_classes(HERE / "java", CACHE / "java"),
            java_command, lacks=frozenset({"together", "readme"}), tls=True,
        ),
        Language(
            "go", "5.1.4", ("go",), install_go, lambda: [str(CACHE / "go" / "driver")],
            lacks=frozenset({"together", "readme"}), tls=True,
        ),
        Language(
            "rust", "5.0.0", ("cargo",), install_rust, lambda: [str(CACHE / "rust" / "debug" / "driver")],
            lacks=frozenset({"push", "change", "readme", "recall"}),
        ),
    )
}  # fmt: skip
