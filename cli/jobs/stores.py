"""``penstock job merge|split|compact|replay``: the jobs that make stores."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.failures import CommandFailed, ExitCode
from cli.jobs.spark import LOCAL, Directories, Directory, Master, Quiet, run_job, values
from cli.session import Session, print_json, session_of
from cli.times import Since, Until

if TYPE_CHECKING:
    from pipeline.jobs.new_store.new_store import NewStore
    from storage.view.log.walk import DamagedRange

LogFileSize = Annotated[
    int | None,
    typer.Option(help="Bytes of a commit log file; otherwise as the store's that is read."),
]


def merge(
    context: typer.Context,
    directories: Directories,
    target: Annotated[Path, typer.Option("--to", help="New directory for the new store.")],
    without: Annotated[
        list[str] | None, typer.Option(help="Leave a topic out; may be given several times.")
    ] = None,
    log_file_size: LogFileSize = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Make one new store of several, in the order of their messages' store times."""
    session, report = run_job(
        context, "merge", master, directories, target,
        without=without or [], log_file_size=log_file_size, quiet=quiet,
    )  # fmt: skip
    _print(session, [report.store], report.damage)


def split(
    context: typer.Context,
    directory: Directory,
    target: Annotated[
        Path, typer.Option("--to", help="New directory, in which each new store gets one.")
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]A,B", help="Topics of one new store; may be given several times."
        ),
    ] = None,
    rest: Annotated[bool, typer.Option("--rest", help="One more store of all others.")] = False,
    log_file_size: LogFileSize = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Make a new store of each topic of a store, or of each group of topics."""
    session, report = run_job(
        context, "split", master, directory, target,
        topics=topics or [], rest=rest, log_file_size=log_file_size, quiet=quiet,
    )  # fmt: skip
    _print(session, report.stores, [(directory, damage) for damage in report.damage])


def compact(
    context: typer.Context,
    directory: Directory,
    target: Annotated[Path, typer.Option("--to", help="New directory for store or table.")],
    topics: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Topics to compact; all that users have if not given."),
    ] = None,
    keep_others: Annotated[
        bool, typer.Option("--keep-others", help="Take all other topics along as they are.")
    ] = False,
    keyless: Annotated[
        str, typer.Option(metavar="keep|drop", help="What becomes of messages without a key.")
    ] = "keep",
    keep_tombstones: Annotated[
        bool,
        typer.Option("--keep-tombstones", help="Keep a key's last message if it has no body."),
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", metavar="store|parquet", help="What to write.")
    ] = "store",
    log_file_size: LogFileSize = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Keep the latest message of each topic and key, in a new store or a Parquet table."""
    named = [name for text in topics or [] for name in text.split(",") if name]
    session, report = run_job(
        context, "compact", master, directory, target, topics=named, keep_others=keep_others,
        keyless=keyless, keep_tombstones=keep_tombstones, format=format_,
        log_file_size=log_file_size, quiet=quiet,
    )  # fmt: skip
    session.say(
        f"{report.keys:,} keys, {report.tombstones:,} of them ended by a tombstone;"
        f" {report.records:,} messages in {report.target}; {report.seconds:.1f} s",
        values(report, "target", "records", "keys", "tombstones", "log_bytes", "seconds"),
    )
    made = [report.store] if report.store else []
    _print(session, made, [(directory, damage) for damage in report.damage])


def replay(
    context: typer.Context,
    directory: Directory,
    topics: Annotated[str, typer.Argument(metavar="TOPIC[,TOPIC]", help="What to replay.")],
    target: Annotated[
        Path | None, typer.Option("--to", help="New directory for a new store.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Writer of a live store.")
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(help="Topic to write to; it must exist at an endpoint.")
    ] = None,
    since: Since = None,
    until: Until = None,
    tags: Annotated[str, typer.Option(help="One of these tags: 'a || b'.")] = "*",
    key: Annotated[str | None, typer.Option(help="With this key, or message id.")] = None,
    replay_id: Annotated[
        str | None,
        typer.Option(help="Name of the replay; one that was done under a name is not done again."),
    ] = None,
    master: Master = LOCAL,
    quiet: Quiet = False,
) -> None:
    """Write messages again, marked, into a topic of a live store or into a new store."""
    if (target is None) == (endpoint is None):
        raise CommandFailed(
            "give either --endpoint, the writer of a live store, or --to, a new directory",
            ExitCode.USAGE,
        )
    if endpoint is not None and to_topic is None:
        raise CommandFailed("with --endpoint give --to-topic, a topic there", ExitCode.USAGE)
    named = [name for name in topics.split(",") if name]
    session, report = run_job(
        context, "replay", master, directory, named, to_topic=to_topic, endpoint=endpoint,
        tls=session_of(context).tls, target=target, begin_ms=since, end_ms=until, tags=tags,
        key=key, replay_id=replay_id, quiet=quiet,
    )  # fmt: skip
    if report.store is not None:
        _print(session, [report.store], [])
        return
    line = f"{report.messages:,} messages in {to_topic} as {report.replay_id}"
    if report.already:
        line = f"nothing to do: {report.replay_id} was done before"
    session.say(
        line,
        values(report, "messages", "already", "replay_id", "seconds"),
    )


def _print(
    session: Session, stores: Iterable[NewStore], damaged: Iterable[tuple[str, DamagedRange]]
) -> None:
    """Print each store, which places of consumers went, and what was damaged and left out.

    Ends with the exit code for damage if there was any.
    """
    console, code = session.console(), ExitCode.DONE
    for store in stores:
        if session.as_json:
            print_json(
                values(
                    store, "records", "log_bytes", "topics", "queues", "renumbered",
                    "dropped_offsets", store="path",
                )
            )  # fmt: skip
            continue
        moved = f", {len(store.renumbered):,} of them renumbered" if store.renumbered else ""
        console.print(
            f"{store.path}: {store.records:,} messages in {store.queues:,} queues{moved},"
            f" {store.log_bytes:,} bytes of log",
            markup=False,
        )
        for line in store.dropped_offsets:
            console.print(f"  dropped the place of {line}", markup=False, style="yellow")
    for name, damage in damaged:
        code = ExitCode.DAMAGED
        if session.as_json:
            print_json({"store": name, **damage_value(damage)})
        else:
            console.print(
                f"{name}: left out {damage.end_offset - damage.begin_offset:,} damaged bytes at"
                f" commit offset {damage.begin_offset}: {damage.reason}",
                markup=False,
                style="red",
            )
    if code:
        raise typer.Exit(code)


def damage_value(damage: DamagedRange) -> dict[str, Any]:
    """Return a damaged range of a log as JSON has it."""
    return {"begin": damage.begin_offset, "end": damage.end_offset, "reason": damage.reason}
