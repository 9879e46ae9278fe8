"""House rules that no linter knows, each with what to do instead."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("storage", "services", "penstock", "cli", "pipeline", "pyspark_penstock")
PACKAGES = (*PRODUCT, "bench")
GENERATED = {ROOT / "penstock" / "v1", ROOT / "services" / "gateway" / "v2"}
MODULE_LINES_MAX = 400
LONG_MODULES: dict[str, str] = {  # a longer module, and why it is one noun
    "penstock/errors.py": "every error of the client",
    "services/config/groups.py": "every setting of the services, each declared once",
    "storage/leases/group_topic.py": "a group in a topic: hands out, and settles by handle",
    "storage/leases/leases.py": "every call about leases, and the one lock that they are made under",
    "storage/writer.py": "the door to a store that is written to",
}
LINE_LENGTH_MAX = 110
# One thing at both ends of the wire: an error that the client raises when a service has refused with
# the error of that name (it is the reason in the status), and a value whose fields the engine returned.
REFUSALS = {
    "GroupExists", "GroupNotFound", "InvalidArgument", "QueueNotFound", "StageExists", "StageNotFound", "TopicExists", "TopicNotFound",
    "TransactionExists", "UnreadableBody", "PermissionDenied", "PolicyExists", "PolicyNotFound", "Unauthenticated", "UserExists", "UserNotFound",
}  # fmt: skip
VALUES = {
    "EndedTransaction", "Policy", "PullResult", "Record",
    "RunningSettings", "TransactionCheck", "User", "WriterStatus",
}  # fmt: skip

FILE_MODULES = {"mmap", "shutil", "glob", "tempfile", "fcntl"}
OS_FILE_CALLS = {
    "open", "stat", "lstat", "listdir", "scandir", "walk", "access", "pread", "pwrite", "read", "write",
    "truncate", "ftruncate", "fsync", "fdatasync", "rename", "replace", "unlink", "remove", "link", "mkdir",
    "makedirs", "rmdir", "utime", "fdopen",
}  # fmt: skip
PATH_FILE_CALLS = {
    "read_bytes", "read_text", "write_bytes", "write_text", "stat", "lstat", "exists", "is_file", "is_dir",
    "is_symlink", "iterdir", "glob", "rglob", "walk", "mkdir", "rmdir", "touch", "unlink", "rename",
    "hardlink_to", "symlink_to", "chmod",
}  # fmt: skip
FILES_OF_THE_PIPELINE = {
    "pipeline/jobs/new_directory.py": "a directory gets its name when all in it is durable",
    "pipeline/jobs/new_store/new_store.py": "directories of queues and index move into a new store",
    "pipeline/jobs/rebuild/in_place.py": "directories change places",
    "pipeline/jobs/rebuild/job.py": "directories that are built in are made, and removed after a failure",
    "pipeline/jobs/audit.py": "the directory of the findings and their files",
    "pipeline/jobs/compact/job.py": "a directory of the job's own, between its two passes",
    "pipeline/jobs/compact/latest.py": "files of the job's own, between its two passes",
    "pipeline/jobs/parquet_files.py": "Parquet files that Spark wrote",
    "pipeline/jobs/export/job.py": "the directory of the export",
    "pipeline/jobs/export/manifest.py": "the export's manifest and its lock",
    "pipeline/jobs/export/targets.py": "files of the export",
    "pipeline/jobs/export/write.py": "files of the export",
    "pipeline/session/java.py": "the machine's Java",
    "pipeline/session/scripts.py": "scripts that Spark starts",
    "pipeline/session/session.py": "Spark's own directory",
}


def committed_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def modules() -> list[Path]:
    return modules_of(PACKAGES)


def modules_of(packages: Iterable[str]) -> list[Path]:
    found = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    return [path for path in found if not GENERATED.intersection(path.parents)]


def texts() -> list[tuple[Path, str]]:
    suffixes = {".py", ".md", ".toml", ".yaml", ".proto", ".sh", ""}
    return [
        (path, path.read_text(encoding="utf-8", errors="replace"))
        for path in committed_files()
        if path.suffix in suffixes and "golden" not in path.parts
    ]


def test_a_long_module_has_a_reason() -> None:
    """A module of more than 400 lines is one noun, and LONG_MODULES says why."""
    long = {
        str(path.relative_to(ROOT)): count
        for path in modules()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    }

    check_exceptions(long, set(LONG_MODULES))


def test_a_class_name_means_one_thing() -> None:
    """Give the second thing a name of its own."""
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(
                    f"{path.relative_to(ROOT)}:{node.lineno}"
                )
    twice = {name: found for name, found in places.items() if len(found) > 1}

    check_exceptions(twice, REFUSALS | VALUES)


def check_exceptions(found: Mapping[str, object], known: set[str]) -> None:
    """Fail for what is not on the list, and for what is on it and repaired: take that from the list."""
    assert {name: place for name, place in found.items() if name not in known} == {}
    assert known - found.keys() == set()


def test_layout_tables_in_docstrings_fit_the_line() -> None:
    """A table that wraps is not read; shorten its notes."""
    wide = []
    for path in modules():
        docstring = (
            ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False) or ""
        )
        for number, line in enumerate(docstring.splitlines(), start=1):
            if len(line) > LINE_LENGTH_MAX:
                wide.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns")

    assert not wide


def test_no_machine_path_is_committed() -> None:
    """Name a directory relative to the repository, or take it as an argument."""
    machine = re.compile(r"(?<![\w.])/(?:work|root|home)/[\w.]|\.\./shared")
    named = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in texts()
        if path != Path(__file__).resolve() and (match := machine.search(text))
    ]

    assert not named


def test_tests_have_no_packages_and_unique_names() -> None:
    """Importlib mode needs no __init__.py, and one that shadows a package breaks it."""
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts]
    names = [path.name for path in tests if path.name.startswith("test_")]

    assert [path for path in tests if path.name == "__init__.py"] == []
    assert sorted(names) == sorted(set(names))


def test_every_module_of_the_engine_leaves_the_environment_alone() -> None:
    """Settings are read by services/config and passed on.

    gRPC reads what penstock/proxies.py names; no flag takes the secret that penstock/credentials.py reads."""
    reads = [
        str(path.relative_to(ROOT))
        for path in modules()
        if path.parts[len(ROOT.parts)] in {"storage", "penstock"}
        and path not in (ROOT / "penstock" / "proxies.py", ROOT / "penstock" / "credentials.py")
        and re.search(r"os\.(environ|getenv)", path.read_text(encoding="utf-8"))
    ]

    assert not reads


def test_the_engine_knows_nothing_of_the_wire() -> None:
    """A decoder of requests belongs to the service that takes them."""
    contract = "\n".join(path.read_text() for path in (ROOT / "protos").rglob("*.proto"))
    requests = re.findall(r"^message (\w+(?:Request|Response|Result))\b", contract, re.MULTILINE)
    of_values = {"PutResult", "BatchResult", "PullResult", "KeyQueryResult"}
    wire = re.compile(
        rf"\b({'|'.join({*requests} - of_values)})\b|protobuf|varint|field number", re.I
    )
    assert wire.search("a ProduceRequest") and wire.search("Field numbers of the contract")
    named = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in (ROOT / "storage").rglob("*.py")
        if (match := wire.search(path.read_text(encoding="utf-8")))
    ]

    assert not named


def test_the_pipeline_sees_of_the_store_no_more_than_reading_and_stopped_stores_take() -> None:
    """What import-linter lists as forbidden has no end; this is the list of what is allowed."""
    allowed = re.compile(
        r"storage\.(view|checks|findings|stopped|format|kernels|arrow|errors|clock|message"
        r"|index\.follower|index\.index_file)(\.|$)"
    )
    wrong = []
    for path in modules_of(("pipeline", "pyspark_penstock")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
                if names == ["storage"]:
                    names = [f"storage.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            wrong += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if name.partition(".")[0] == "storage" and not allowed.match(name)
            ]

    assert not wrong


def file_accesses(source: str) -> list[str]:
    """Return the calls in a module that reach files without the store's own packages."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in FILE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if node.module in FILE_MODULES else []
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        receiver, _, name = called.rpartition(".")
        if (
            called == "open"
            or (receiver == "os" and name in OS_FILE_CALLS)
            or (receiver == "np" and name in ("load", "save", "memmap", "fromfile"))
            or (name == "open" and receiver and not receiver[0].isupper())
            or (name in PATH_FILE_CALLS and receiver and receiver != "os")
            or re.search(r"(^|\.)filesystem$", receiver)
        ):
            found.append(called)
    return found


def test_the_pipeline_reaches_the_files_of_stores_through_storage_alone() -> None:
    """Read them by ``storage.view``, write them by ``storage.stopped``; other files are on the list."""
    for access in (
        "os.stat(path)", "open(path)", "path.read_bytes()", "(log / name).open('xb')", "import mmap",
        "self.store.filesystem.read_bytes(path)", "path.with_name('a').exists()", "np.load(path)",
    ):  # fmt: skip
        assert file_accesses(access), access
    assert not file_accesses("StoreView.open(path).read(path, 0, 8); os.path.abspath(path)")
    found = {
        str(path.relative_to(ROOT)): calls
        for path in modules_of(("pipeline", "pyspark_penstock"))
        if (calls := file_accesses(path.read_text(encoding="utf-8")))
    }

    check_exceptions(found, set(FILES_OF_THE_PIPELINE))


def test_kernels_of_services_are_compiled_when_the_others_are() -> None:
    """A service that compiled its own would start late, and each time where its files are read-only."""
    kernels = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in modules_of(("services", "penstock", "cli"))
        if re.search(r"^@kernel\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert kernels
    for file in ("Makefile", "deploy/Dockerfile"):
        command = re.search(r"-m storage\.kernels(.*)", (ROOT / file).read_text(encoding="utf-8"))
        assert command is not None
        assert set(command.group(1).split()) == kernels, file


def test_the_make_targets_are_all_described() -> None:
    """`make help` lists a target only if a `## what it does` follows it."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    described = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))

    assert described == set(phony.group(1).split())


def test_pages_name_tests_that_exist() -> None:
    """Name a test as pytest does; after a rename, rename it there, too."""
    named = [
        (path, *match.groups())
        for path, text in texts()
        if path.suffix == ".md"
        for match in re.finditer(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    ]
    missing = [
        f"{path.relative_to(ROOT)}: {module}::{name}"
        for path, module, name in named
        if not (ROOT / module).is_file() or f"def {name}(" not in (ROOT / module).read_text()
    ]

    assert missing == []
    assert len(named) > 50
