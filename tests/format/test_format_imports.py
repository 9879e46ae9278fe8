"""What importing the formats costs: executors and clients import nothing of the engine with them."""

import subprocess
import sys
from pathlib import Path

import storage.format


def test_formats_import_the_standard_library_alone() -> None:
    """No third-party module and no part of the engine is loaded by any format module."""
    names = sorted(path.stem for path in Path(storage.format.__file__).parent.glob("*.py"))
    code = "import sys\n" + "".join(f"import storage.format.{name}\n" for name in names[1:])
    code += "print(' '.join(sorted(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.split(".")[0] == "storage"}
    assert all(name.startswith("storage.format") for name in ours - {"storage", "storage.errors"})
    third_party = {"numpy", "numba", "lz4", "zstandard", "isal", "grpc", "pydantic"}
    assert third_party & {name.split(".")[0] for name in loaded} == set()
