"""The README's example of an official client, as it stands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab import Lab

README = Path(__file__).resolve().parents[3] / "README.md"
ADDRESS = "127.0.0.1:8081"


def readme_example(lab: Lab) -> None:
    """The README's example sends, receives and acknowledges."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    (example,) = [block for block in blocks if block.startswith("from rocketmq import")]
    assert ADDRESS in example
    lab.server.topic("orders", "NORMAL", 4)
    done = subprocess.run(
        [lab.language.command()[0], "-c", example.replace(ADDRESS, lab.server.address)],
        capture_output=True, text=True, timeout=60, cwd=lab.folder, env=lab.environment(), check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-500:]
    assert re.fullmatch(r"[0-9A-F]{34}\n1 paid b'two pens'\n", done.stdout), done.stdout
