"""From flags, PENSTOCK_* variables and a TOML file to the settings of a process, with a help in groups.

Typer reads flags and variables, as for every command of ``penstock``; the values are checked here.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, get_args

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from services import stdio
from services.config.groups import ESSENTIALS, HelpEntry, help_entries
from services.config.settings import KINDS, SecureSettings
from services.config.usage import CONTEXT, EXIT_USAGE, wrong_usage_in_one_line
from services.config.values import Metavar, size_text

ENV_PREFIX: Final = "PENSTOCK_"
_EPILOG: Final = (
    "A SIZE is bytes, for instance 64MiB. The variable of --store is PENSTOCK_STORE, its key in the file is store."
    " Flags win over variables, variables over the file. All settings, and exit codes: docs/operations.md."
)
_S = TypeVar("_S", bound=SecureSettings)


class Given(NamedTuple):
    """A value, and where it was given."""

    value: Any
    source: str


def load(kind: type[_S], argv: Sequence[str] | None, *, prog: str) -> _S:
    """Read the settings of a process; on anything wrong print one line and exit with status 2."""
    given = _flags_and_variables(kind, argv, prog)
    if "config" in given:
        given = _file(Path(given["config"].value), prog) | given
    try:
        return kind(**{name: each.value for name, each in given.items()})
    except ValidationError as error:
        first = error.errors()[0]
        problem = str(first["msg"]).removeprefix("Value error, ")
        if not first["loc"]:  # of several settings together, which it names itself
            _exit(prog, problem)
        name = str(first["loc"][0])
        if first["type"] == "missing":
            problem = f"is needed (or {variable_of(name)})"
        _exit(prog, f"{given[name].source if name in given else flag_of(name)}: {problem}")


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def default_text(field: FieldInfo) -> str | None:
    """Return the default of a setting as it is typed, None if there is none."""
    if field.is_required() or field.default in (None, ""):
        return None
    is_size = Metavar("SIZE") in field.metadata
    return size_text(field.default) if is_size else str(field.default)


def _flags_and_variables(
    kind: type[SecureSettings], argv: Sequence[str] | None, prog: str
) -> dict[str, Given]:
    given: dict[str, Given] = {}

    def take(context: typer.Context, **values: Any) -> None:
        for name, value in values.items():
            source = context.get_parameter_source(name)
            if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
                is_flag = source.name == "COMMANDLINE"
                given[name] = Given(value, flag_of(name) if is_flag else variable_of(name))

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    options = [
        _option(name, kind.model_fields[name], entry) for name, entry in help_entries(kind).items()
    ]
    take.__signature__ = inspect.Signature([context, *options])  # type: ignore[attr-defined]
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, context_settings=CONTEXT
    )
    app.command(help=" ".join((kind.__doc__ or "").split()), epilog=_EPILOG)(take)
    try:
        with wrong_usage_in_one_line(prog):
            ended = app(None if argv is None else list(argv), prog_name=prog, standalone_mode=False)
    except typer.Exit as end:
        raise SystemExit(end.exit_code) from None
    if ended is not None:  # such as --help
        raise SystemExit(ended)
    return given


def _option(name: str, field: FieldInfo, entry: HelpEntry) -> inspect.Parameter:
    is_switch = field.annotation is bool
    flag = flag_of(name)
    option = typer.Option(
        field.default if is_switch else default_text(field),
        f"{flag}/--no-{flag.removeprefix('--')}" if is_switch else flag,
        envvar=variable_of(name),
        show_envvar=False,
        help=f"{entry.meaning}{' Required.' if field.is_required() else ''}",
        metavar=None if is_switch else _metavar(field),
        rich_help_panel=None
        if entry.title == ESSENTIALS
        else entry.title,  # these stand first, with --help,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=bool if is_switch else str
    )


def _metavar(field: FieldInfo) -> str:
    for each in field.metadata:
        if isinstance(each, Metavar):
            return each.text
    words = get_args(field.annotation)
    if words and all(isinstance(word, str) for word in words):
        return "|".join(words)
    if Path in (field.annotation, *words):
        return "<path>"
    return (
        "<int>" if field.annotation is int else "<float>" if field.annotation is float else "<str>"
    )


def _file(path: Path, prog: str) -> dict[str, Given]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        _exit(prog, f"settings file {path}: {error}")
    known = {name for kind in KINDS.values() for name in kind.model_fields}
    if unknown := sorted(set(values) - known):
        _exit(prog, f"settings file {path}: no setting is called {', '.join(unknown)}")
    return {name: Given(value, f"settings file {path}: {name}") for name, value in values.items()}


def _exit(prog: str, problem: str) -> NoReturn:
    stdio.say(f"{prog}: {problem}", is_error=True)
    raise SystemExit(EXIT_USAGE)
