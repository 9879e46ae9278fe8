"""What every command shares: the addresses, the chosen output, and a client made on first use."""

from __future__ import annotations

import codecs
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from cli.failures import CommandFailed, ExitCode
from penstock.addresses import (
    DEFAULT_INDEXER,
    DEFAULT_READER,
    DEFAULT_WRITER,
    address_problem,
    channel_options,
)
from services.bodies import printable

if TYPE_CHECKING:
    import grpc
    from rich.console import Console
    from rich.progress import Progress

    from penstock import TLS, Client
    from penstock.credentials import Credentials

DEFAULT_TIMEOUT_S = 10.0
UNREACHABLE_S_MAX = 1.5  # somebody looks on; long enough for a service that is being restarted
PIPE_WIDTH = 1_000_000  # columns where there is no terminal: nothing is cut or folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The global options."""

    writer: str = DEFAULT_WRITER
    reader: str = DEFAULT_READER
    indexer: str = DEFAULT_INDEXER
    timeout_s: float = DEFAULT_TIMEOUT_S
    tls: TLS | None = None
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    as_json: bool = False
    debug: bool = False

    def client(self) -> Client:
        """Return a client of the three addresses; nothing is connected yet."""
        from penstock import Client, RetryPolicy

        credentials = self.credentials()
        return Client(
            writer=self.writer,
            reader=self.reader,
            indexer=self.indexer,
            tls=self.tls,
            access_key=credentials.access_key if credentials else "",
            secret_key=credentials.secret_key if credentials else "",
            timeout_s=self.timeout_s,
            retry=RetryPolicy(unreachable_s_max=UNREACHABLE_S_MAX),
        )

    def credentials(self, other: str = "") -> Credentials | None:
        """Return the keys of the environment, or else those of a profile; None without.

        ``other`` is an address beside the three: keys of a profile go there only if its host is one of theirs.
        """
        from penstock.credentials import given_credentials

        try:
            if (given := given_credentials()) or (other and not self._has_host(other)):
                return given
            return given_credentials(self.access_key, self.secret_key)
        except ValueError as error:
            raise CommandFailed(f"PENSTOCK_ACCESS_KEY: {error}", ExitCode.USAGE) from error

    def _has_host(self, address: str) -> bool:
        host = address.rpartition(":")[0]
        return any(
            each.rpartition(":")[0] == host for each in (self.writer, self.reader, self.indexer)
        )

    @contextlib.contextmanager
    def channel(self, address: str) -> Iterator[grpc.Channel]:
        """Give a channel to an address that is no service's of the client."""
        import grpc

        from penstock.tls import open_channel

        with open_channel(grpc, address, channel_options(address), self.tls) as channel:
            yield channel

    def console(self, stream: TextIO | None = None) -> Console:
        """Return what tables and colours go through; plain and wide when it is not a terminal."""
        from rich.console import Console

        class PipedConsole(Console):
            def on_broken_pipe(self) -> None:  # its own ends the process with 1
                raise BrokenPipeError

        target = stream or sys.stdout
        width = None if target.isatty() else PIPE_WIDTH
        return PipedConsole(file=target, width=width, highlight=False)

    def show(
        self,
        rows: Sequence[dict[str, Any]],
        *,
        json_rows: Iterable[dict[str, Any]] | None = None,
        title: str = "",
        empty: str = "nothing",
        numbers: Sequence[str] = (),
    ) -> None:
        """Print rows as a table whose columns are the keys, or as JSON lines, of ``json_rows`` if given."""
        if self.as_json:
            for row in rows if json_rows is None else json_rows:
                print_json(row)
            return
        console = self.console()
        if not rows:
            console.print(empty, style="dim")
            return
        from rich import box
        from rich.table import Table

        if title:  # a table would fold it to its own width
            console.print(title, style="italic", markup=False, soft_wrap=True)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in rows[0]:
            right = name in numbers or all(isinstance(r[name], int | float) for r in rows)
            table.add_column(name.replace("_", " "), justify="right" if right else "left")
        for row in rows:
            table.add_row(*(_cell(value) for value in row.values()))
        console.print(table)

    def say(self, line: str, value: dict[str, Any]) -> None:
        """Print one outcome: a line for people, or the value as JSON."""
        if self.as_json:
            print_json(value)
        else:
            self.console().print(line, soft_wrap=True)  # ids and handles are copied: no hard breaks

    def confirm(self, question: str, *, yes: bool) -> None:
        """Return once somebody has agreed; ``yes`` is who has already. A program is not asked: it fails."""
        if yes:
            return
        if self.as_json:
            raise CommandFailed("with --json nobody is asked: give --yes", ExitCode.USAGE)
        try:
            agreed = typer.confirm(question)
        except typer.Abort:  # Ctrl-C, or there is nobody to answer
            agreed = False
            typer.echo()
        if not agreed:
            raise CommandFailed("not confirmed: nothing was done", ExitCode.INTERRUPTED)

    @contextlib.contextmanager
    def progress(self, description: str, total: int | None) -> Iterator[Any]:
        """Show a bar on stderr and yield ``advance(count)``; nothing is shown with --json or no tty."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda _count: None
            return
        bar = progress_bar(self.console(sys.stderr))
        with bar:
            task = bar.add_task(description, total=total)
            yield lambda count: bar.advance(task, count)


def progress_bar(console: Console) -> Progress:
    """Return a bar with count, rate and time left."""
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed or 0
            return Text(f"{speed:,.0f}/s", style="cyan")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:,.0f}"),
        RateColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def check_address(name: str, address: str) -> None:
    """Raise CommandFailed if an address is not HOST:PORT; gRPC judges its other schemes."""
    fix = address_problem(address)
    if fix and not address.startswith(("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")):
        raise CommandFailed(f"{name}: {address!r} is not HOST:PORT; {fix}", ExitCode.USAGE)


def session_of(context: typer.Context) -> Session:
    """Return the session which the top-level callback made."""
    found = context.find_object(Session)
    return found or Session()


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(json_text(value) + "\n")


def json_text(value: Any) -> str:
    """Return a value as JSON that stdout can have: in ASCII where its encoding is not UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if not text.isascii():
        is_utf8 = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
        try:
            text.encode("utf-8" if is_utf8 else "ascii")
        except UnicodeEncodeError:  # another encoding, or lone surrogates
            text = json.dumps(value, separators=(",", ":"), default=str)
    return text


def read_lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, or of stdin for ``-``, as they are but without their ends."""
    if path == "-" and sys.stdin is None:
        raise CommandFailed("stdin is closed: nothing can be read from -", ExitCode.USAGE)
    with contextlib.ExitStack() as stack:
        stream = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        for line in stream:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    from rich.markup import escape

    return escape(printable(str(value)))
