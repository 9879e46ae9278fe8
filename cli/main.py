"""The ``penstock`` command: options that all commands share, and where each command lives."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli import completion, profiles
from cli.commands import COMMANDS, PASSED_THROUGH, WITHOUT_PROFILE, loaded
from cli.failures import CommandFailed, ExitCode, describe
from cli.session import DEFAULT_TIMEOUT_S, Session, check_address
from penstock.addresses import DEFAULT_INDEXER, DEFAULT_READER, DEFAULT_WRITER
from services.config.usage import CONTEXT, wrong_usage_in_one_line
from services.stdio import open_standard_streams, stdout_problem
from storage import modes

GLOBAL_FLAGS = ("--json", "--debug", "--shared-files")
GLOBAL_VALUES = (
    "--profile", "--writer", "--reader", "--indexer", "--timeout", "--tls-ca", "--tls-cert", "--tls-key",
    "--tls-server-name",
)  # fmt: skip
_TAKES_PROFILE = "penstock.takes_profile"  # of a context: the command does
COMMON_OPTIONS = (
    f"Every command also takes {', '.join((*GLOBAL_FLAGS, *GLOBAL_VALUES))}: penstock --help."
)


class PenstockGroup(TyperGroup):
    """The top-level command: global options anywhere, every error one line and an exit code."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        lazy: dict[str, Any] = dict.fromkeys(COMMANDS)
        self.commands = {**lazy, **self.commands}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move global options to the front, so that ``penstock topic list --json`` works too."""
        try:
            with wrong_usage_in_one_line():
                front, rest = hoisted(args)
                ctx.meta[_TAKES_PROFILE] = not rest or rest[0] not in WITHOUT_PROFILE
                return super().parse_args(ctx, front + rest)
        except CommandFailed as error:  # of a profile
            raise _reported(error) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command when it is asked for."""
        if cmd_name in COMMANDS:
            self.commands[cmd_name] = loaded(cmd_name, COMMON_OPTIONS)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; never a traceback unless --debug asks for it."""
        try:
            with wrong_usage_in_one_line():
                result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:  # the reader of a pipe has seen enough
            stdout_problem()
            raise typer.Exit(ExitCode.DONE) from None
        except Exception as error:
            if is_for_typer(error) or (isinstance(ctx.obj, Session) and ctx.obj.debug):
                raise
            raise _reported(error) from None
        return result


def _reported(error: Exception) -> typer.Exit:
    """Print an error's line and return the exit with its code."""
    line, code = describe(error)
    print(f"penstock: {line}", file=sys.stderr)  # noqa: T201
    return typer.Exit(code)


app = typer.Typer(
    name="penstock",
    cls=PenstockGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=CONTEXT,
    epilog="Options of this page may also follow any command. Exit codes: docs/operations.md.",
)


def print_version(wanted: bool) -> None:
    """Print the version and leave, if that is what was asked for."""
    if wanted:
        from importlib.metadata import version

        print(f"penstock {version('penstock')}")  # noqa: T201
        raise typer.Exit


def use_profile(context: typer.Context, name: str) -> str:
    """Take options from a profile where neither the command line nor the environment gives them.

    A profile that the command line names wins over the environment.
    """
    if not context.meta[_TAKES_PROFILE]:
        return name
    try:
        profile = profiles.load_profiles().chosen(name)
    except CommandFailed:
        if context.resilient_parsing:  # somebody waits for a completion
            return name
        raise
    source = context.get_parameter_source("_profile")
    if profile and source is not None and source.name == "COMMANDLINE":
        profiles.forget_environment()
    context.default_map = {
        option: profile[option] for option in profiles.OPTIONS if option in profile
    }
    context.obj = profile
    return name


@app.callback()
def options(
    context: typer.Context,
    _profile: Annotated[
        str,
        typer.Option(
            "--profile",
            envvar="PENSTOCK_PROFILE",
            metavar="NAME",
            autocompletion=completion.profile_names,
            is_eager=True,
            callback=use_profile,
            help="Take the other options from a profile: penstock profile --help.",
        ),
    ] = "",
    writer: Annotated[
        str, typer.Option(envvar="PENSTOCK_WRITER", help="Address of the writer.")
    ] = DEFAULT_WRITER,
    reader: Annotated[
        str, typer.Option(envvar="PENSTOCK_READER", help="Address of the reader.")
    ] = DEFAULT_READER,
    indexer: Annotated[
        str, typer.Option(envvar="PENSTOCK_INDEXER", help="Address of the indexer.")
    ] = DEFAULT_INDEXER,
    timeout: Annotated[
        float,
        typer.Option(
            envvar="PENSTOCK_TIMEOUT", min=0.01, help="Seconds for a call, its retries included."
        ),
    ] = DEFAULT_TIMEOUT_S,
    tls_ca: Annotated[
        str,
        typer.Option(
            envvar="PENSTOCK_TLS_CA",
            metavar="FILE|public",
            help="Call with TLS: the authorities of the services' certificates; public: those that gRPC knows.",
        ),
    ] = "",
    tls_cert: Annotated[
        str,
        typer.Option(
            envvar="PENSTOCK_TLS_CERT",
            metavar="FILE",
            help="The certificate to show to services that ask for one.",
        ),
    ] = "",
    tls_key: Annotated[
        str,
        typer.Option(envvar="PENSTOCK_TLS_KEY", metavar="FILE", help="Its private key."),
    ] = "",
    tls_server_name: Annotated[
        str,
        typer.Option(
            envvar="PENSTOCK_TLS_SERVER_NAME",
            help="The name in the services' certificates, if it is not the host of their addresses.",
        ),
    ] = "",
    shared_files: Annotated[
        bool,
        typer.Option(
            "--shared-files",
            envvar="PENSTOCK_SHARED_FILES",
            help="Let other users of the machine open the files of stores that the command makes.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version),
    ] = False,
) -> None:
    """A message store with RocketMQ's files: writer, reader, indexer and a gateway over one directory."""
    for flag, address in (("--writer", writer), ("--reader", reader), ("--indexer", indexer)):
        check_address(flag, address)
    _check_tls(context, tls_ca)
    modes.share(shared=shared_files)
    tls = None
    if tls_ca:
        from penstock.tls import tls_of

        tls = tls_of(tls_ca, tls_cert, tls_key, tls_server_name)
    access_key, secret_key = profiles.keys_for(context.obj or {}, writer, reader, indexer)
    context.obj = Session(
        writer=writer,
        reader=reader,
        indexer=indexer,
        timeout_s=timeout,
        tls=tls,
        access_key=access_key,
        secret_key=secret_key,
        as_json=as_json,
        debug=debug,
    )


def _check_tls(context: typer.Context, tls_ca: str) -> None:
    """Raise CommandFailed for files of TLS with which calls would be in plain text; a variable may be a service's."""
    for option in profiles.WITH_TLS_CA:
        source = context.get_parameter_source(option)
        is_given = source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")
        if is_given and context.params[option] and not tls_ca:
            raise CommandFailed(profiles.NO_TLS_CA, ExitCode.USAGE)


def hoisted(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the global options, and the other arguments; what follows ``--`` is one of these."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--" or (word in PASSED_THROUGH and not rest):
            rest += [word, *words]
        elif word in GLOBAL_FLAGS or (name in GLOBAL_VALUES and equals):
            front.append(word)
        elif word in GLOBAL_VALUES:
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return front, rest


def is_for_typer(error: Exception) -> bool:
    """Tell usage errors and exits, which typer reports itself, from all others."""
    return isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code")


def main() -> None:
    """Run the command line; what the console script calls."""
    # grpc's own notes about connections would stand among the command's output.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # noqa: TID251  read by grpc alone
    open_standard_streams()
    code: int = ExitCode.FAILED
    try:
        app(prog_name="penstock")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else ExitCode.DONE
    except OSError as error:  # of a help text, which typer writes itself
        print(f"penstock: {describe(error)[0]}", file=sys.stderr)  # noqa: T201
    if (problem := stdout_problem()) and code == ExitCode.DONE:
        print(f"penstock: {problem}", file=sys.stderr)  # noqa: T201
        code = ExitCode.FAILED
    service = sys.modules.get("services.process")
    if service is not None:  # one has run in this process
        service.leave(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
