"""Every error of ours is the same after a copy and after pickling, as a process pool does it."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import penstock.errors
from penstock.values import Damage, UncoveredRange
from storage.errors import PicklableError

PACKAGES = ("cli", "penstock", "pipeline", "services", "storage")
DAMAGE = Damage(queue_offset=3, commit_offset=99, size=100, reason="body CRC", queue_id=1)
UNCOVERED = UncoveredRange(begin_commit_offset=0, end_commit_offset=9, file_name="f", reason="gone")
VALUES: dict[str, Any] = {  # by the annotation of a constructor's parameter
    "str": "a text",
    "int": 7,
    "bool": True,
    "grpc.StatusCode | None": grpc.StatusCode.ABORTED,
    "Damage | None": DAMAGE,
    "UncoveredRange": UNCOVERED,
    "Exception": penstock.errors.TopicNotFound("no topic", reason="R"),
    "Sequence[PenstockError]": [penstock.errors.TopicNotFound("no topic", reason="R")],
    "Parts": ((0, 1),),
    "v2.Code": 40402,
    "ExitCode": 8,
}


def errors_of_ours() -> Iterator[type[Exception]]:
    """Each class of an error that reaches users, wherever it is defined."""
    for package in PACKAGES:
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            if found.name.endswith(("_pb2", "_pb2_grpc", "__main__")):
                continue
            for kind in vars(importlib.import_module(found.name)).values():
                if (
                    isinstance(kind, type)
                    and issubclass(kind, Exception)
                    and kind.__module__ == found.name
                    and (
                        issubclass(kind, PicklableError)
                        or found.name.endswith((".errors", ".failures"))
                    )
                ):
                    yield kind


ERRORS = list(errors_of_ours())


def made(kind: type[Exception]) -> Exception:
    """Return an error with something in all that its constructor takes."""
    if kind.__init__ is Exception.__init__:
        return kind("a text")
    given, named = [], {}
    for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= {"code": grpc.StatusCode.ABORTED, "reason": "A_WORD"}
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[name] = VALUES[parameter.annotation]
        else:
            given.append(VALUES[parameter.annotation])
    return kind(*given, **named)


def pickled(protocol: int) -> Callable[[Exception], Exception]:
    def through(error: Exception) -> Exception:
        again: Exception = pickle.loads(pickle.dumps(error, protocol))
        return again

    return through


def seen(error: Exception) -> tuple[Any, ...]:
    """Return what a user sees of an error; errors in it likewise."""
    attributes = {
        name: [seen(each) for each in value] if name == "errors" else value
        for name, value in vars(error).items()
    }
    return type(error), str(error), repr(error), error.args, attributes


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_copy_of_an_error_has_its_text_and_its_attributes(kind: type[Exception]) -> None:
    error = made(kind)
    error.add_note("a note")
    ways = [copy.copy, copy.deepcopy, *map(pickled, range(pickle.HIGHEST_PROTOCOL + 1))]

    for way in ways:
        assert seen(way(error)) == seen(error)
        assert seen(way(way(error))) == seen(error)


def test_errors_of_each_package_are_tried() -> None:
    modules = {kind.__module__ for kind in ERRORS}
    assert modules >= {"penstock.errors", "storage.errors", "pipeline.errors", "cli.failures"}
