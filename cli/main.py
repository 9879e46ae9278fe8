"""The ``penstock`` command: options that all commands share, and where each command lives."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli import bench, certs, offline, pub, query, serving, staged, status, sub, topics
from cli.accounts import acl, users
from cli.consumers import clients, dead_letters, groups, offsets
from cli.delays import timers
from cli.failures import ExitCode, describe
from cli.jobs import app as jobs
from cli.producers import transactions
from cli.session import DEFAULT_TIMEOUT_S, Session, check_address
from cli.upkeep import retention, running_settings
from penstock.addresses import DEFAULT_INDEXER, DEFAULT_READER, DEFAULT_WRITER
from penstock.tls import tls_of
from services.config.usage import CONTEXT, wrong_usage_in_one_line
from services.stdio import open_standard_streams, stdout_problem
from storage import modes

GLOBAL_FLAGS = ("--json", "--debug", "--shared-files")
GLOBAL_VALUES = (
    "--writer", "--reader", "--indexer", "--timeout", "--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name",
)  # fmt: skip
COMMON_OPTIONS = (
    f"Every command takes {', '.join((*GLOBAL_FLAGS, *GLOBAL_VALUES))}, too: penstock --help."
)
PASSED_THROUGH = frozenset(
    serving.SERVICES
)  # these commands parse everything after them themselves


class PenstockGroup(TyperGroup):
    """The top-level command: global options anywhere, every error one line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move global options to the front, so that ``penstock topic list --json`` works too."""
        with wrong_usage_in_one_line():
            return super().parse_args(ctx, hoisted(args))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command whose help breaks lines between paragraphs alone, and names the options of all."""
        command = super().get_command(ctx, cmd_name)
        for each in (command, *getattr(command, "commands", {}).values()):
            if each is not None and each.help:
                each.help = re.sub(r"(?<!\n)\n(?!\n)", " ", each.help)
                each.epilog = COMMON_OPTIONS
        return command

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
            line, code = describe(error)
            print(f"penstock: {line}", file=sys.stderr)  # noqa: T201
            raise typer.Exit(code) from None
        return result


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


@app.callback()
def options(
    context: typer.Context,
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
    modes.share(shared=shared_files)
    context.obj = Session(
        writer=writer,
        reader=reader,
        indexer=indexer,
        timeout_s=timeout,
        tls=tls_of(tls_ca, tls_cert, tls_key, tls_server_name),
        as_json=as_json,
        debug=debug,
    )


def hoisted(args: Sequence[str]) -> list[str]:
    """Return the arguments with global options first; what follows ``--`` stays as it is."""
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
    return front + rest


def is_for_typer(error: Exception) -> bool:
    """Tell usage errors and exits, which typer reports itself, from all others."""
    return isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code")


app.add_typer(topics.app, name="topic", rich_help_panel="Topics and messages")
app.add_typer(groups.app, name="group", rich_help_panel="Topics and messages")
app.add_typer(dead_letters.app, name="dlq", rich_help_panel="Topics and messages")
app.add_typer(transactions.app, name="transactions", rich_help_panel="Topics and messages")
app.add_typer(users.app, name="user", rich_help_panel="Accounts")
app.add_typer(acl.app, name="acl", rich_help_panel="Accounts")
pub.register(app)
sub.register(app)
query.register(app)
timers.register(app)
offsets.register(app)
status.register(app)
staged.register(app)
retention.register(app)
clients.register(app)
app.add_typer(running_settings.app, name="config", rich_help_panel="Services")
serving.register(app)
certs.register(app)
offline.register(app)
bench.register(app)
app.add_typer(jobs.app, name="job", rich_help_panel=offline.PANEL)


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
