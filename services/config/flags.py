"""From flags, PENSTOCK_* variables and a TOML file to the settings of a process.

This is the only module which reads the environment.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from pydantic import ByteSize, ValidationError
from pydantic_settings import CliSettingsSource, SettingsError, TomlConfigSettingsSource

from services import streams
from services.config.process import ENV_PREFIX, ProcessSettings
from services.config.settings import (
    GatewaySettings,
    IndexerSettings,
    ReaderSettings,
    ServeSettings,
    WriterSettings,
    size_text,
)

EXIT_USAGE: Final = 2
_CONFIG_FLAG: Final = "--config"
_S = TypeVar("_S", bound=ProcessSettings)


def load(
    kind: type[_S],
    argv: Sequence[str] | None,
    *,
    prog: str,
    defaults: Mapping[str, Any] | None = None,
) -> _S:
    """Read the settings of a process; on anything wrong print one line and exit with status 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    path = _config_path(arguments)
    try:
        if path is not None:
            path.open().close()  # the source takes a file that is missing for an empty one
        values = TomlConfigSettingsSource(kind, path).toml_data
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        _exit(prog, f"settings file {path}: {error}")
    unknown = sorted(set(values) - _all_names())
    if unknown:
        _exit(prog, f"settings file {path}: no setting is called {', '.join(unknown)}")
    flavour = type(kind.__name__, (kind,), {"toml_file": path, "__doc__": kind.__doc__})
    flags: CliSettingsSource[Any] = CliSettingsSource(
        flavour, cli_prog_name=prog, cli_exit_on_error=False
    )
    _complete_help(flags, kind)
    try:
        source = flags(args=arguments)
        return flavour(_cli_settings_source=source, **(defaults or {}))  # type: ignore[no-any-return]
    except ValidationError as error:
        errors = error.errors()
        if not errors[0]["loc"]:  # of several settings together, which it names itself
            _exit(prog, str(errors[0]["msg"]).removeprefix("Value error, "))
        name = str(errors[0]["loc"][0])
        # A setting that may be a word or a size has an error for each; the last says what a size is.
        same = [each for each in errors if each["loc"][:1] == errors[0]["loc"][:1]]
        first = same[-1]
        given_as = _given_as(name, arguments, values, path)
        problem = str(first["msg"]).removeprefix("Value error, ")
        if str(first["type"]).startswith("byte_size"):
            words = [each["ctx"]["expected"] for each in same if each["type"] == "literal_error"]
            sizes = ", or ".join(["bytes, for instance 64MiB", *words])
            problem = f"{str(first['input'])!r} is not a size: give {sizes}"
        if first["type"] == "missing":
            problem = f"is needed (or {ENV_PREFIX}{name.upper()})"
        _exit(prog, f"{given_as}: {problem}")
    except SettingsError as error:
        problem = str(error).splitlines()[0].removeprefix("error parsing CLI: ")
        _exit(prog, f"{problem}; see {prog} --help")


def _given_as(
    name: str, arguments: Sequence[str], values: Mapping[str, Any], path: Path | None
) -> str:
    """Return the flag, variable or line of the file that a setting has its value from."""
    flag, variable = "--" + name.replace("_", "-"), ENV_PREFIX + name.upper()
    if any(argument.partition("=")[0] == flag for argument in arguments):
        return flag
    if os.environ.get(variable):  # noqa: TID251  the one reader
        return variable
    return f"settings file {path}: {name}" if name in values else flag


def _config_path(arguments: Sequence[str]) -> Path | None:
    for position, argument in enumerate(arguments):
        if argument == _CONFIG_FLAG and position + 1 < len(arguments):
            return Path(arguments[position + 1])
        if argument.startswith(_CONFIG_FLAG + "="):
            return Path(argument.partition("=")[2])
    named = os.environ.get(ENV_PREFIX + "CONFIG", "")  # noqa: TID251  the one reader
    return Path(named) if named else None


def _all_names() -> set[str]:
    kinds: tuple[type[ProcessSettings], ...] = (
        WriterSettings, ReaderSettings, IndexerSettings, GatewaySettings, ServeSettings,
    )  # fmt: skip
    return {name for kind in kinds for name in kind.model_fields}


def _complete_help(source: CliSettingsSource[Any], kind: type[ProcessSettings]) -> None:
    """Add its environment variable to each flag's help, and write sizes as they are typed."""
    for action in source.root_parser._actions:
        field = kind.model_fields.get(action.dest)
        if field is None or not action.help:
            continue
        if isinstance(field.default, ByteSize):
            action.metavar = "SIZE"
            shown = f"(default: {size_text(field.default)})"
            action.help = action.help.replace(f"(default: {int(field.default)})", shown)
        action.help += f" [{ENV_PREFIX}{action.dest.upper()}]"
    source.root_parser.epilog = (
        "A SIZE is bytes, for instance 64MiB. Flags win over variables, variables over the file."
        " All settings, and exit codes: docs/operations.md."
    )


def _exit(prog: str, problem: str) -> NoReturn:
    streams.say(f"{prog}: {problem}", is_error=True)
    raise SystemExit(EXIT_USAGE)
